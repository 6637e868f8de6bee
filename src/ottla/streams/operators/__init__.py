"""Sources, operators and sinks: a family of them in each module.

    topics              sources and sinks
    stateless           operators on one record at a time
    aggregations        aggregations by key and window, suppression
    table_aggregations  aggregations of a table by another key
    processing          processors of the user, deduplication
    joins               joins of streams and tables
    checks              checks that several families make

An operator is a frozen `Node` with its fields, its text for `explain()` (`describe`), its engine
and its kind of state. What must hold for every node is checked in `__post_init__`. The function
beside the node checks the arguments of the DSL's method, in the order that gives the most helpful
error, and returns the node. Nothing in this package imports Spark.

An operator is compiled by the function in `RULES` of the module of the same name in
`ottla.streams.compile`. Compilation is apart because a topology is built and explained without
Spark, which every line of the compiler needs. A test checks that each node has a rule there and a
pinned text.
"""
