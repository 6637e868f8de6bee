"""`ottla sql "select …"`: SQL queries over topics.

    command       the command: options, notes, output
    statement     parser for the statements that do not need Spark (pure)
    direct        evaluation of these statements from the topic's records
    json_rows     conversion of JSON values to rows, exactly as in Spark (pure)
    on_spark      execution of all other statements in a Spark session
    error_messages  error messages of one sentence each, including those for Spark's errors

`direct` and `on_spark` return the same rows for the same statement. If `direct` cannot guarantee
this, it raises NeedsSpark, and the statement runs on Spark."""
