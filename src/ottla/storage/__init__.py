"""The log on disk, in Kafka's own format. Synchronous; all input and output goes through the
FileSystem port, so that tests can cut the power between any two calls."""
