"""A plan -> Spark DataFrames, batch or streaming: the same plan, the same code.

    columns           expressions -> columns
    python_functions  functions that could not be traced -> Arrow UDFs
    codecs            serdes -> columns
    frames            nodes -> DataFrames

Between nodes, rows are `key`, `value` (a struct if it is a record), `timestamp`, and `window` (a
struct of start and end) where keys have one. This package imports Spark; nothing imports it before
an application starts."""
