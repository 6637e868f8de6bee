"""Administration: topics, configs, groups, offsets, transactions, the cluster.

admin      AsyncAdmin and Admin
dispatch   which broker is asked, and when again
topics, configs, nodes   one module per subject: requests, answers, values"""

from ottla.client.admin.admin import Admin, AsyncAdmin
from ottla.client.admin.config import AdminConfig
from ottla.client.admin.configs import (
    AlterOp,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ResourceType,
)
from ottla.client.admin.dispatch import Results
from ottla.client.admin.groups import GroupDescription, GroupListing, MemberDescription
from ottla.client.admin.nodes import (
    ApiVersions,
    BrokerNode,
    ClusterDescription,
    Features,
    FinalizedFeature,
    LogDirDescription,
    ReplicaInfo,
)
from ottla.client.admin.partitions import (
    IsolationLevel,
    ListedOffset,
    OffsetSpec,
    ProducerState,
)
from ottla.client.admin.topics import (
    CreatedTopic,
    ElectionType,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TopicListing,
)
from ottla.client.admin.transactions import (
    AbortTransaction,
    TransactionDescription,
    TransactionListing,
)
from ottla.client.consumer.record import OffsetAndMetadata

__all__ = [
    "AbortTransaction",
    "GroupDescription",
    "GroupListing",
    "IsolationLevel",
    "ListedOffset",
    "MemberDescription",
    "OffsetAndMetadata",
    "OffsetSpec",
    "ProducerState",
    "TransactionDescription",
    "TransactionListing",
    "Admin",
    "AdminConfig",
    "AlterOp",
    "ApiVersions",
    "AsyncAdmin",
    "BrokerNode",
    "ClusterDescription",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConfigSynonym",
    "CreatedTopic",
    "ElectionType",
    "Features",
    "FinalizedFeature",
    "LogDirDescription",
    "NewTopic",
    "PartitionDescription",
    "ReplicaInfo",
    "ResourceType",
    "Results",
    "TopicDescription",
    "TopicListing",
]
