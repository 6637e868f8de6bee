"""Brokers for tests: a real process (`BrokerProcess`) or one inside the test (`EmbeddedBroker`)."""
