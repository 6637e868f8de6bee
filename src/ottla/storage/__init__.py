"""The on-disk log, in Apache Kafka's format.

All code here is synchronous and does its I/O through the `FileSystem` port (base/ports.py), so that
tests can simulate a power failure between any two calls.
"""
