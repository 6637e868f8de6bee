"""Bytes to values and back, and nothing else: no sockets, no clocks, no event loop, no files."""
