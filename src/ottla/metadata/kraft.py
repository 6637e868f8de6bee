"""Reader for Apache Kafka's metadata log, limited to what taking over its directory requires.

A record of `__cluster_metadata-0` is a message in Kafka's flexible encoding, in a frame:

    frameVersion uvarint (1), apiKey uvarint, version uvarint, then the message's fields

    uvarint      seven bits per byte, lowest first    string, array  uvarint length + 1, 0 is null
    int8 … int64, float64 big-endian                  uuid           16 bytes
    tagged fields at the end: uvarint count, and for each: tag uvarint, size uvarint, bytes

    key  record                 fields read here
      2  TopicRecord            name string, topicId uuid
      3  PartitionRecord        partitionId int32, topicId uuid, replicas, isr, removingReplicas and
                                addingReplicas (arrays of int32), leader int32, leaderEpoch int32
      4  ConfigRecord           resourceType int8, then strings: resourceName, name, value or null
      5  PartitionChangeRecord  partitionId int32, topicId uuid; tag 1: leader int32, -2 unchanged
      9  RemoveTopicRecord      topicId uuid
     11  UserScramCredentialRecord         name string, mechanism int8, salt, storedKey, serverKey
                                           (bytes: uvarint length + 1), iterations int32
     14  ClientQuotaRecord      entity (array of: entityType string, entityName string or null,
                                tags), key string, value float64, remove int8
     15  ProducerIdsRecord      brokerId int32, brokerEpoch int64, nextProducerId int64
     18  AccessControlEntryRecord          id uuid, resourceType int8, resourceName string,
                                           patternType int8, principal string, host string,
                                           operation int8, permissionType int8
     19  RemoveAccessControlEntryRecord    id uuid
     22  RemoveUserScramCredentialRecord   name string, mechanism int8
     23, 24, 25                 a transaction begins, ends, is aborted

Later versions append fields or add tagged ones, so newer records can be read as well. Other records
are counted and skipped. A malformed record is also skipped, and counted as broken: an unreadable
record must not keep a broker from its data. An ACL that cannot be read is remembered as such,
because without it the broker could serve data to clients that Kafka denied it. This includes ACLs
with codes that this version does not know.

Records of a transaction take effect only when it ends; those of an aborted or unfinished
transaction are ignored.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.base.acl import AclBinding, AclOperation, AclPermission, AclResourceType, PatternType
from ottla.base.scram import ScramCredential, ScramMechanism

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
LEADER_UNCHANGED = -2

_TOPIC, _PARTITION, _CONFIG, _PARTITION_CHANGE, _REMOVE_TOPIC = 2, 3, 4, 5, 9
_SCRAM, _REMOVE_SCRAM = 11, 22
_QUOTA = 14
_ACL, _REMOVE_ACL = 18, 19
_PRODUCER_IDS = 15
_BEGIN, _END, _ABORT = 23, 24, 25
_FRAME_VERSION = 1
_LEADER_TAG = 1
_MAX_UVARINT_BYTES = 5

UNREADABLE = b""
"""ID in place of those of ACLs whose ID cannot be read."""

NOT_MIGRATED = {
    10: "delegation tokens",
}
"""Kinds of records that may matter to the cluster's owner but are not supported here."""


class KraftQuota(NamedTuple):
    """A quota without its value: the entity that it limits, and its key, as Kafka writes them."""

    entity: tuple[tuple[str, str | None], ...]
    """Types and names of the parts of the entity. A name of None is the default."""
    key: str


@dataclass(slots=True)
class KraftTopic:
    name: str
    leader_epochs: dict[int, int] = field(default_factory=dict)
    """Leader epoch of each partition."""


class KraftImage:
    """The state that results from the records of the log."""

    def __init__(self) -> None:
        self.topics: dict[bytes, KraftTopic] = {}
        self.topic_configs: dict[str, dict[str, str]] = {}
        self.broker_configs: dict[str, dict[str, str]] = {}
        """Dynamic configs by resource name: a broker id, or '' for the cluster-wide default."""
        self.scram: dict[str, dict[ScramMechanism, ScramCredential]] = {}
        """SCRAM credentials by user."""
        self.acls: dict[bytes, AclBinding | None] = {}
        """ACLs by ID; None in place of one that could not be read."""
        self.quotas: dict[KraftQuota, float] = {}
        """Client quotas."""
        self.next_producer_id = 0
        self.other_records: Counter[int] = Counter()
        """Number of skipped records, by key."""
        self.broken_records = 0
        self._transaction: list[bytes] | None = None

    def apply(self, record: bytes) -> None:
        """Apply the value of one record."""
        key = None
        try:
            fields = _Fields(record)
            if fields.uvarint() != _FRAME_VERSION:
                raise ValueError("unknown frame version")
            key, _version = fields.uvarint(), fields.uvarint()
            if key in (_BEGIN, _END, _ABORT):
                self._apply_transaction_boundary(key)
            elif self._transaction is not None:
                self._transaction.append(record)
            elif key in self._READERS:
                self._READERS[key](self, fields)
            else:
                self.other_records[key] += 1
        except (ValueError, LookupError, struct.error):
            self.broken_records += 1
            if key in (_ACL, _REMOVE_ACL):
                self.acls[_id_of_acl(record)] = None

    def _apply_transaction_boundary(self, key: int) -> None:
        pending, self._transaction = self._transaction, [] if key == _BEGIN else None
        if key == _END:
            for record in pending or ():
                self.apply(record)

    # ------------------------------------------------------------------------------- records

    def _apply_topic(self, fields: _Fields) -> None:
        name, topic_id = fields.required_string(), fields.uuid()
        self.topics.setdefault(topic_id, KraftTopic(name))

    def _apply_partition(self, fields: _Fields) -> None:
        partition, topic_id = fields.int32(), fields.uuid()
        for _array in ("replicas", "isr", "removing replicas", "adding replicas"):
            fields.skip_int32_array()
        _leader, leader_epoch = fields.int32(), fields.int32()
        self.topics[topic_id].leader_epochs[partition] = leader_epoch

    def _apply_partition_change(self, fields: _Fields) -> None:
        partition, topic_id = fields.int32(), fields.uuid()
        leader = fields.tagged().get(_LEADER_TAG)
        if leader is not None and _Fields(leader).int32() != LEADER_UNCHANGED:
            self.topics[topic_id].leader_epochs[partition] += 1

    def _apply_config(self, fields: _Fields) -> None:
        kind, resource = fields.int8(), fields.required_string()
        name, value = fields.required_string(), fields.string()
        if kind not in (TOPIC_RESOURCE, BROKER_RESOURCE):
            return
        configs = self.topic_configs if kind == TOPIC_RESOURCE else self.broker_configs
        of_resource = configs.setdefault(resource, {})
        if value is None:
            of_resource.pop(name, None)
        else:
            of_resource[name] = value

    def _apply_removed_topic(self, fields: _Fields) -> None:
        removed = self.topics.pop(fields.uuid(), None)
        if removed is not None:
            self.topic_configs.pop(removed.name, None)

    def _apply_scram(self, fields: _Fields) -> None:
        user, mechanism = fields.required_string(), ScramMechanism(fields.int8())
        salt, stored_key = fields.required_bytes(), fields.required_bytes()
        server_key = fields.required_bytes()
        credential = ScramCredential(salt, stored_key, server_key, fields.int32())
        self.scram.setdefault(user, {})[mechanism] = credential

    def _apply_removed_scram(self, fields: _Fields) -> None:
        user, mechanism = fields.required_string(), ScramMechanism(fields.int8())
        credentials = self.scram.get(user, {})
        credentials.pop(mechanism, None)
        if not credentials:
            self.scram.pop(user, None)

    def _apply_acl(self, fields: _Fields) -> None:
        acl_id, resource_type, name = fields.uuid(), fields.int8(), fields.required_string()
        pattern_type, principal = fields.int8(), fields.required_string()
        host, operation, permission = fields.required_string(), fields.int8(), fields.int8()
        binding = AclBinding(
            AclResourceType(resource_type),
            PatternType(pattern_type),
            name,
            principal,
            host,
            AclOperation(operation),
            AclPermission(permission),
        )
        if not _is_definite(binding):
            raise ValueError("an ACL has a part that only filters can have")
        self.acls[acl_id] = binding

    def _apply_removed_acl(self, fields: _Fields) -> None:
        self.acls.pop(fields.uuid(), None)

    def _apply_quota(self, fields: _Fields) -> None:
        parts = []
        for _ in range(fields.array_length()):
            parts.append((fields.required_string(), fields.string()))
            fields.tagged()
        key, value, is_removal = fields.required_string(), fields.float64(), fields.int8()
        quota = KraftQuota(tuple(sorted(parts, key=lambda part: part[0])), key)
        if is_removal:
            self.quotas.pop(quota, None)
        else:
            self.quotas[quota] = value

    def _apply_producer_ids(self, fields: _Fields) -> None:
        _broker, _epoch, next_producer_id = fields.int32(), fields.int64(), fields.int64()
        self.next_producer_id = max(self.next_producer_id, next_producer_id)

    _READERS: dict[int, Callable[[KraftImage, _Fields], None]] = {  # noqa: RUF012
        _TOPIC: _apply_topic,
        _PARTITION: _apply_partition,
        _CONFIG: _apply_config,
        _PARTITION_CHANGE: _apply_partition_change,
        _REMOVE_TOPIC: _apply_removed_topic,
        _SCRAM: _apply_scram,
        _REMOVE_SCRAM: _apply_removed_scram,
        _QUOTA: _apply_quota,
        _ACL: _apply_acl,
        _REMOVE_ACL: _apply_removed_acl,
        _PRODUCER_IDS: _apply_producer_ids,
    }


def _is_definite(binding: AclBinding) -> bool:
    return (
        binding.resource_type > AclResourceType.ANY
        and binding.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED)
        and binding.operation > AclOperation.ANY
        and binding.permission > AclPermission.ANY
    )


def _id_of_acl(record: bytes) -> bytes:
    """Return the ID in a record of an ACL that cannot be read, or `UNREADABLE`."""
    fields = _Fields(record)
    try:
        _frame, _key, _version = fields.uvarint(), fields.uvarint(), fields.uvarint()
        return fields.uuid()
    except (ValueError, LookupError):
        return UNREADABLE


class _Fields:
    """Sequential decoder. Raises ValueError, IndexError or struct.error past the end."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def uvarint(self) -> int:
        value = 0
        for index in range(_MAX_UVARINT_BYTES):
            byte = self._data[self._position]
            self._position += 1
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return value
        raise ValueError("a varint is too long")

    def int8(self) -> int:
        return int(self._number(">b"))

    def int32(self) -> int:
        return int(self._number(">i"))

    def int64(self) -> int:
        return int(self._number(">q"))

    def float64(self) -> float:
        return self._number(">d")

    def uuid(self) -> bytes:
        return self._bytes(16)

    def required_bytes(self) -> bytes:
        length = self.uvarint() - 1
        if length < 0:
            raise ValueError("non-nullable bytes are null")
        return self._bytes(length)

    def string(self) -> str | None:
        length = self.uvarint() - 1
        return None if length < 0 else self._bytes(length).decode()

    def required_string(self) -> str:
        text = self.string()
        if text is None:
            raise ValueError("a non-nullable string is null")
        return text

    def array_length(self) -> int:
        return max(self.uvarint() - 1, 0)

    def skip_int32_array(self) -> None:
        self._bytes(4 * self.array_length())

    def tagged(self) -> dict[int, bytes]:
        found = {}
        for _ in range(self.uvarint()):
            tag, size = self.uvarint(), self.uvarint()
            found[tag] = self._bytes(size)
        return found

    def _number(self, layout: str) -> float:
        value: float
        (value,) = struct.unpack_from(layout, self._data, self._position)
        self._position += struct.calcsize(layout)
        return value

    def _bytes(self, size: int) -> bytes:
        start = self._position
        if start + size > len(self._data):
            raise ValueError("the record ends too early")
        self._position = start + size
        return self._data[start : self._position]
