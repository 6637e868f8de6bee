"""Tables of PostgreSQL, MySQL, MariaDB and SQLite into topics and back: Kafka Connect's JDBC.

url         `connection.url`, Java's or SQLAlchemy's; `database` connections and their errors
source      the source connector; `source_task` polls, `modes` says what comes next and from where
parts       a table in ranges; `spark_read` reads them into a `spool`, `part_reader` hands them out
columns     column types of a database as schemas and values
sink        the sink connector; `sink_task` writes batches, each with its offsets, in a transaction
rows        records as rows of a table; `values` values as databases take them
statements  the SQL of it, and `target` the tables: made, and widened, as records want them"""
