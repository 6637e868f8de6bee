"""Checks of Ottla with Apache Kafka's own tools and broker. The entry point is `compat/run`."""
