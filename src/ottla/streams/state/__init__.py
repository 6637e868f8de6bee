"""Operators that keep state in Python: what they do with a batch of records, as plain functions of
state, records and stream time. No Spark here; `compile/stateful` runs these programs in its state.

    program     the contract: state, a batch, the time -> records out; when to be called again
    records     records as functions see them: `o.amount` and `o["amount"]`
    folds       initialiser, adder, merger: of users, and of `st.sum` and its like
    totals      aggregations by key
    windows     aggregations by key in tumbling, hopping and session windows
    sliding     aggregations by key in sliding windows
    tables      joins of tables by key
    foreign     joins of tables by a foreign key
    processors  users' processors with stores and timers

Keys are spread over buckets by their hash. A bucket's state is one Python object, pickled, in
one row of Spark's state store; it is read and written once per micro-batch, however many records
there are. That is what makes it two orders quicker than a call to Spark for each key."""
