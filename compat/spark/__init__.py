"""Comparison of Spark's own Kafka connector and ours."""
