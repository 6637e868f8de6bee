"""Admin client: topics, configs, groups, offsets, transactions, quotas, users, ACLs, delegation
tokens and the cluster.

`async_admin` and `admin` hold the two clients; `dispatch` selects the broker for each request and
retries. Each of the other modules covers one subject: its requests, responses and result types."""

from ottla.base.acl import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from ottla.base.cluster import ElectionType
from ottla.base.config.resource import AlterOp, ConfigSource, ConfigSynonym, ResourceType
from ottla.base.principal import Principal
from ottla.client.admin.admin import Admin
from ottla.client.admin.async_admin import AsyncAdmin
from ottla.client.admin.config import AdminConfig
from ottla.client.admin.configs import (
    ConfigChange,
    ConfigEntry,
    ConfigResource,
)
from ottla.client.admin.delegation_tokens import DelegationToken
from ottla.client.admin.dispatch import Listing, Results
from ottla.client.admin.group_offsets import GroupLag, PartitionLag
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
from ottla.client.admin.quotas import QuotaEntity
from ottla.client.admin.reassignments import Reassignment
from ottla.client.admin.topics import (
    CreatedTopic,
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
from ottla.client.admin.users import (
    DEFAULT_SCRAM_ITERATIONS,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from ottla.client.consumer.record import OffsetAndMetadata

__all__ = [
    "AbortTransaction",
    "AclBinding",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "AclResourceType",
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
    "DEFAULT_SCRAM_ITERATIONS",
    "DelegationToken",
    "ElectionType",
    "Features",
    "FinalizedFeature",
    "GroupDescription",
    "GroupLag",
    "GroupListing",
    "IsolationLevel",
    "ListedOffset",
    "Listing",
    "LogDirDescription",
    "MemberDescription",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetSpec",
    "PartitionDescription",
    "PartitionLag",
    "PatternType",
    "Principal",
    "ProducerState",
    "QuotaEntity",
    "Reassignment",
    "ReplicaInfo",
    "ResourceType",
    "Results",
    "ScramCredentialInfo",
    "ScramMechanism",
    "TopicDescription",
    "TopicListing",
    "TransactionDescription",
    "TransactionListing",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
]
