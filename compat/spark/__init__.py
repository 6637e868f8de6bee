"""Spark's own Kafka connector and ours, side by side."""
