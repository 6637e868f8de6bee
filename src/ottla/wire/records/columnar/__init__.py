"""Conversion between record batches and Arrow, many records at a time. Needs the `arrow` extra.

    decode      `decode_fetch`: the records of a fetched partition as Arrow record batches
    columns     `RecordColumns`: Arrow columns as the buffers that the kernels read
    encode      `encode_batches`: rows of these columns as record batches to produce
    partition   `partition_by_key`, `group_rows`: the partition of each row
    warm_up     compile or load all kernels ahead of time, off the event loop

Importing any of these modules loads numba, numpy and pyarrow (half a second, 110 MB) and compiles
the kernels (seconds, once per machine). They are therefore imported only when needed.
"""
