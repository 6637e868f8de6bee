"""Workers of one `group.id` that share connectors and tasks.

protocol      what they tell each other through the group: Connect's own, as bytes
assignor      who gets what; pure
member        joining the group, staying in it
topic_log     a compacted topic, read to its end and followed
config_state  connectors, their tasks and target states: `config.storage.topic`
status_state  states of connectors and tasks: `status.storage.topic`
config_writer what only the leader may do: change the former
herder        the rest: starts and stops what is assigned; answers REST"""
