"""Ottla: Apache Kafka's broker, protocol and log format, in Python."""

__version__ = "0.2.0.dev0"

_PUBLIC = {
    "ottla.base.types": ("TopicPartition",),
    "ottla.client.admin": (
        "AbortTransaction", "AclBinding", "AclFilter", "AclOperation", "AclPermission",
        "AclResourceType", "Admin", "AlterOp", "ApiVersions", "AsyncAdmin", "BrokerNode",
        "ClusterDescription", "ConfigChange", "ConfigEntry", "ConfigResource", "ConfigSource",
        "ConfigSynonym", "CreatedTopic", "DelegationToken", "ElectionType", "Features",
        "FinalizedFeature", "GroupDescription", "GroupLag", "GroupListing", "IsolationLevel",
        "ListedOffset", "Listing", "LogDirDescription", "MemberDescription", "NewTopic",
        "OffsetSpec", "PartitionDescription", "PartitionLag", "PatternType", "Principal",
        "ProducerState", "QuotaEntity", "Reassignment", "ReplicaInfo", "ResourceType", "Results",
        "ScramCredentialInfo", "ScramMechanism", "TopicDescription", "TopicListing",
        "TransactionDescription", "TransactionListing", "UserScramCredentialDeletion",
        "UserScramCredentialUpsertion",
    ),
    "ottla.client.consumer.async_consumer": ("AsyncConsumer",),
    "ottla.client.consumer.consumer": ("Consumer",),
    "ottla.client.consumer.read_table": ("read_batches", "read_table"),
    "ottla.client.consumer.rebalance": ("RebalanceListener",),
    "ottla.client.consumer.record": (
        "GroupMetadata", "OffsetAndMetadata", "OffsetAndTimestamp", "Record",
        "Records", "SubscriptionPattern",
    ),
    "ottla.client.errors": (
        "AuthenticationFailed", "AuthorizationFailed", "BrokersUnreachable", "BufferFull",
        "ClientClosed", "ClientError", "CommitFailed", "ConnectionLost", "DeserializationFailed",
        "InvalidConfig", "KafkaError", "KafkaTimeout", "NoOffsetForPartition", "OffsetOutOfRange",
        "ProducerFenced", "RecordTooLarge", "SerializationFailed", "TransactionAborted",
        "TransactionFailed", "UnknownTopic", "UnsupportedVersion", "UserError",
    ),
    "ottla.client.producer.producer": ("Producer",),
    "ottla.client.producer.future": ("RecordFuture", "RecordMetadata"),
    "ottla.client.producer.partitioners": ("PriorityPartitioner", "RoundRobinPartitioner"),
    "ottla.client.producer.async_producer": ("AsyncProducer",),
    "ottla.client.token_provider": ("TokenProvider",),
    "ottla.client.producer.table_future": ("TableFuture", "TableMetadata"),
}  # fmt: skip
"""Module -> the names that `ottla` has from it. They are loaded when first used, so that importing
`ottla` costs nothing; `__init__.pyi` tells type checkers the same."""

_MODULES = {name: module for module, names in _PUBLIC.items() for name in names}
__all__ = ["__version__", *_MODULES]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'ottla' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
