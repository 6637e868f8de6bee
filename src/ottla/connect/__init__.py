"""Import and export with no code: Kafka Connect's model, property files and REST, on Spark.

data         schemas and records: what flows between connectors and topics
api          what a connector is; the contract of resuming
config       properties of workers and connectors, and what is wrong with them
plugins      which class a name means: ours, Java's, or a user's own
converters   records to bytes and back; `json_converter` has Kafka's JSON with schemas
transforms/  Kafka's single message transforms and predicates
pipeline     transforms and converters in a row, and what becomes of a record that fails
offsets      where connectors are: `offset.storage.file.filename`
source_query, sink_query   a connector as a Structured Streaming query
worker       the connectors of one process; their states, failures and restarts
rest, rest_server          Kafka Connect's REST contract; `routes` maps it to the worker
connectors/  file"""
