"""Apache Kafka's own tools and broker, as judges of ours. `compat/run` is the way in."""
