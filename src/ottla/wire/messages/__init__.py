"""Static types of Kafka's requests and responses, one generated module per API.

Each message exists twice, because the codec decodes to objects and encodes from dicts:

    from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponseDict

`ListGroupsRequest` is a decoded message, whose fields are attributes. `ListGroupsResponseDict` is a
message to encode; absent keys get Kafka's defaults. Import them under `TYPE_CHECKING`: they exist
for the type checker, and the codec does not use them. `make codegen` writes the modules.
"""
