"""Kafka's broker and topic properties: what exists, what may be set, what is in force."""
