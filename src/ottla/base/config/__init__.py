"""Kafka's broker, topic and group properties: their definitions and their effective values."""
