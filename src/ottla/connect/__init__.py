"""Import and export with no code: Kafka Connect's model, property files and REST.

data         schemas and records: what flows between connectors and topics
api          what a connector is; the contract of resuming
config       properties of workers and connectors, and what is wrong with them
plugins      which class a name means: ours, Java's, or a user's own
converters   records to bytes and back; `json_converter` has Kafka's JSON with schemas
transforms/  Kafka's single message transforms and predicates
pipeline     transforms and converters in a row, and what becomes of a record that fails
ledger       where connectors are: records of a topic, written with theirs
source_task, sink_task     a task at work; `task_thread` starts it again when it fails
worker       the tasks of one process; `session` has its Spark session
herder       what REST asks of a worker; `standalone` and `distributed/` answer
offsets      what a standalone worker remembers: `offset.storage.file.filename`
rest, rest_…, rest_server  Kafka Connect's REST contract
tables       records as columns of Arrow
schema_registry, registry_converter, avro_converter, json_schema_converter
frames       sources that are streaming DataFrames
connectors/  files, lakes, Spark's formats, HTTP, mirrors, made-up records; postgres (change
             capture), jdbc
debezium     what a change looks like, for those who read them"""
