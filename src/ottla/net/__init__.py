"""Connections to brokers over TCP, shared by clients and brokers."""
