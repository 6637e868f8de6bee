"""Kafka clients: producer, consumer and admin client.

    cluster      brokers, connections, metadata, coordinators and retries
    blocking     base of the blocking clients: an event loop in a thread, and methods that use it
    config       properties, with their defaults and documentation
    errors       the exceptions that clients raise

`async_producer`, `async_consumer` and `async_admin` hold the asyncio classes, which implement the
protocol. `producer`, `consumer` and `admin` hold their blocking twins: each runs an asyncio client
on an event loop of its own. Where a blocking class does work in the caller's thread, both share the
parts in `engine`."""
