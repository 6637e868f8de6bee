"""Real-time mode and update mode of `format("ottla")`, which Spark offers to JVM sources only.

Modules: `DefaultSource.java` is the JVM part, which `jvm_part` compiles and adds to a session. In
real-time mode it starts Python processes beside the tasks of a query, which hold the Kafka clients:
`source_end` reads a partition, `sink_end` writes rows, and `frames` is how they talk to the JVM.
`functions` makes columns of Python functions, which `function_end` calls for each row.
"""
