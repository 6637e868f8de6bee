"""Producer, Consumer and Admin: the Kafka protocol from the client's side.

    cluster      the brokers, their connections, what they say of topics, coordinators; retries
    blocking     the event loop in a thread on which the blocking clients run
    config       every property, its default and its doc
    errors       what can go wrong, as types

One implementation serves both worlds: the asyncio classes do the work, the blocking ones run them
on a loop of their own."""
