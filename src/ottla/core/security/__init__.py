"""Decisions about who a client is."""
