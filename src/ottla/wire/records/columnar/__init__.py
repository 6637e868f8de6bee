"""Record batches to and from Arrow, many records at a time. Needs the `arrow` extra.

    decode      `decode_fetch`: the records of a fetched partition as Arrow record batches
    columns     `RecordColumns`: Arrow columns, seen as the buffers that the others read
    encode      `encode_batches`: rows of these columns as record batches to produce
    partition   `partition_by_key`, `group_rows`: which rows go to which partition
    warm_up     compile or load all kernels now, off the event loop

Importing any of these loads numba, numpy and pyarrow (half a second, 110 MB) and compiles what it
needs (seconds, the first time on a machine), so nothing imports them before they are needed."""
