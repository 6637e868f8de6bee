"""Operators with state in Python, as plain functions of state, records and stream time.

They do not use Spark; `compile/stateful` runs these programs on Spark's state.

    program     the interface: state, a batch and the time -> output records; time of the next call
    records     records as functions see them: `o.amount` and `o["amount"]`
    folds       initializer, adder and merger, of users and of `st.sum` and its like
    totals      aggregations by key
    windows     aggregations by key in tumbling, hopping and session windows
    sliding     aggregations by key in sliding windows
    limits      at most one change per key within a time limit
    tables      joins of tables by key
    foreign     joins of tables by a foreign key
    processors  processors of users, with timers
    stores      stores of processors

Keys are distributed over buckets by their hash. The state of a bucket is one Python object, pickled
into one row of Spark's state store. It is read and written once per micro-batch, however many
records there are, which is about a hundred times as fast as a call to Spark for each key.
"""
