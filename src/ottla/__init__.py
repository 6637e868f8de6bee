"""Ottla: Apache Kafka's broker, protocol and log format, in Python."""

__version__ = "0.1.0.dev0"
