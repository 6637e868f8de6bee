"""Plan of an application: immutable values that are checked when they are created.

    shapes       columns and their types, parsed from Spark's DDL
    expressions  results of traced functions
    tracing      functions over records -> expressions, or why they must run in Python
    node         what sources, operators and sinks have in common
    explain      a plan as text
    picture      a plan as an SVG document

Nothing in this package imports Spark.
"""
