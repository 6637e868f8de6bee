"""Compiler from a plan to Spark DataFrames, both batch and streaming.

    columns           expressions -> columns
    python_functions  functions that could not be traced -> Arrow UDFs
    codecs            serdes -> columns
    stateful          programs of `state` -> DataFrames that use Spark's state
    ticks             wall-clock ticks for these programs
    arrow_rows        Arrow columns <-> Python values for these programs
    rules             what a rule of an operator takes and returns
    frames            a sink -> a DataFrame, by the rules of its operators

The rules of a family of operators are in the module of the same name as in
`ottla.streams.operators`: `topics`, `stateless`, `aggregations`, `table_aggregations`,
`processing`, `joins`.

The rows between nodes have the columns `key`, `value` (a struct if it is a record), `timestamp`,
and, where keys are windowed, `window` (a struct of start and end). This package imports Spark;
other modules import it only when an application starts.
"""
