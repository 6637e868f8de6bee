"""Kafka clients: producer, consumer and admin client.

    cluster      brokers, connections, metadata, coordinators and retries
    blocking     the event loop, in a thread, that the blocking clients run on
    config       properties, with their defaults and documentation
    errors       the exceptions that clients raise

The asyncio classes implement the protocol. Each blocking class runs the asyncio one on an event
loop of its own."""
