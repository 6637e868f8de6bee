"""Connectors that come with Ottla."""
