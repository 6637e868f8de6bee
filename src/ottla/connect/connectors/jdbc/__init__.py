"""JDBC source and sink for PostgreSQL, MySQL, MariaDB and SQLite, like Confluent's.

url         `connection.url` in Java's or SQLAlchemy's form; `database` connects and maps errors
source      source connector; `source_task` polls, `modes` selects the next rows and their offsets
parts       ranges of a table; `spark_read` reads them into a `spool` for `part_reader`
columns     column types of a database as schemas and values
sink        sink connector; `sink_task` writes each batch and its offsets in one transaction
rows        records as rows of a table; `values` converts values for databases
statements  SQL statements; `target` creates tables and adds columns as records require
"""
