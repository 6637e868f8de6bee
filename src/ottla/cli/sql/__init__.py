"""`ottla sql "select …"`: SQL over topics, on this machine.

    command       the command: options, notes, output
    statement     parses the statements that need no Spark (pure)
    direct        answers them from the topic's records
    json_rows     JSON values as rows, exactly as Spark reads them, or not at all (pure)
    on_spark      runs every other statement on a Spark session of its own
    sentences     Spark's errors as one sentence each (pure, but for what it asks of the error)

`direct` and `on_spark` give the same rows for the same statement: whatever `direct` is not sure
about raises NeedsSpark, and the statement goes to Spark."""
