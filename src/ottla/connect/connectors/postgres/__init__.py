"""Change data capture from PostgreSQL, compatible with Debezium's PostgresConnector.

connector   connector class; its properties are in `options`, selection of tables in `tables`
pgoutput    PostgreSQL's replication messages
types       columns as schemas and values; `times`, `arrays`
envelope    changes as records; `changes` handles the stream's transactions and positions
link        connections; `catalog` queries the system catalogs
published   tables and their publications; `privileges` that the role needs for them
slot        replication slot, the WAL it retains, and the policy for it
snapshot    rows before the first change; `snapshot_modes` decides when they are read
task        task that combines these
"""
