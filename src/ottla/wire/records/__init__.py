"""Kafka's v2 record batches as bytes.

`batch` reads, verifies and stamps batches by their headers alone, `record` reads the records inside
them, and `builder` creates batches. `compression` and `crc` are used by all of these. Import names
from the modules, not from this package.
"""
