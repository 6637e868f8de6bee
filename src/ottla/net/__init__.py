"""Talking to a broker over TCP: what clients and other brokers share."""
