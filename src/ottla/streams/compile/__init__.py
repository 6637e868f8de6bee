"""A plan -> Spark DataFrames, batch or streaming: the same plan, the same code.

    columns           expressions -> columns
    python_functions  functions that could not be traced -> Arrow UDFs
    codecs            serdes -> columns
    sources           sources -> DataFrames
    stateful          programs of `state` -> DataFrames, with state of Spark's
    ticks             the clock on the wall, for them
    arrow_rows        Arrow columns <-> Python values, for them
    aggregations      aggregations and processors -> DataFrames
    joining           joins -> DataFrames
    frames            all nodes -> DataFrames

Between nodes, rows are `key`, `value` (a struct if it is a record), `timestamp`, and `window` (a
struct of start and end) where keys have one. This package imports Spark; nothing imports it before
an application starts."""
