"""The plan of an application: immutable values that are checked when they are made.

    shapes       columns and their types, read from Spark's DDL
    expressions  what a traced function has become
    tracing      functions over records -> expressions, or why they must run in Python
    nodes        sources, operators, sinks
    explain      a plan as text

Nothing here knows Spark."""
