"""Kafka's v2 record batches as bytes.

`batch` reads, checks and stamps batches by their header alone; `record` walks the records inside;
`builder` makes batches; `compression` and `crc` are what they stand on. Import from the modules."""
