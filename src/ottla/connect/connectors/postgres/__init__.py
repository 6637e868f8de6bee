"""Every change of PostgreSQL's tables into topics: Debezium's PostgresConnector, in Python.

connector   its properties are in `options`; what they say of tables in `tables`
pgoutput    PostgreSQL's replication messages; `copy_text` the rows of a snapshot
types       columns as schemas and values; `times`, `arrays`
envelope    changes as records; `changes` the stream with its transactions and positions
link        connections; `catalog` what the database says of itself
published   which tables, by which publications; `privileges` what the role needs for them
slot        what is kept back, and the policy
snapshot    the rows before the first change; `snapshot_modes` when they are read
task        all of it, in its order"""
