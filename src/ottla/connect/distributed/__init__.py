"""Workers with the same `group.id` that share connectors and tasks.

protocol      Connect's own group protocol, encoded as bytes
assignor      assignment of connectors and tasks to workers; no I/O
member        membership in the group
topic_log     a compacted topic that is read to its end and followed
config_state  connectors, their tasks and target states: `config.storage.topic`
status_state  states of connectors and tasks: `status.storage.topic`
config_writer writes to the config topic; only the leader uses it
herder        starts and stops assigned units; handles REST requests
"""
