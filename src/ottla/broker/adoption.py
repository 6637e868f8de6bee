"""Adoption of a data directory that Apache Kafka wrote, at the first start on it.

| taken over | from |
|---|---|
| cluster ID and node ID | `meta.properties`; a configured node.id must agree |
| topics, topic IDs and partitions | the log directories, if Kafka's metadata contains the topic |
| configs of topics, of this broker and of all brokers | Kafka's metadata log |
| leader epochs | the metadata log and `leader-epoch-checkpoint`; ours is the next epoch |
| SCRAM credentials of users, ACLs, client quotas | the metadata log |
| the next producer ID | the metadata log; a log must never see an old ID again |

A log whose topic is not in Kafka's metadata was being deleted. It is not adopted, and becomes a
stray like any other log without a topic (logs.py).

A directory that was protected must not become open: the broker does not start on one with ACLs
if it has no authorizer, nor on one with ACLs or quotas that it does not know.

Nothing is deleted on a guess. If the configs are unknown (there is no metadata log, because the
directory is older or Ottla's own metadata was lost, or the log is damaged), records are kept
forever until somebody sets retention.ms."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ottla.base.acl import AclBinding
from ottla.base.config.broker import BROKER, BrokerConfig
from ottla.base.config.topic import TOPIC, topic_config
from ottla.base.errors import KafkaError, UserError
from ottla.base.metadata import Create, Op
from ottla.base.ports import FileSystem
from ottla.base.quota import DEFAULT, QuotaEntity, QuotaKey
from ottla.base.types import ZERO_UUID
from ottla.broker.kraft_log import KraftMetadata, read_kraft_metadata
from ottla.broker.registration import FoundTopic
from ottla.core.controller.internal_topics import internal_topic
from ottla.core.controller.topic_names import topic_name_error
from ottla.metadata import tree
from ottla.metadata.image import ClusterImage
from ottla.metadata.kraft import NOT_MIGRATED, KraftImage, KraftQuota
from ottla.storage.checkpoint import MalformedCheckpoint
from ottla.storage.epoch_cache import LeaderEpochCache
from ottla.storage.log_dirs import DirectoryOwner, FoundLog, LogDirectory

logger = logging.getLogger(__name__)

RETAIN_FOREVER = {"retention.ms": "-1", "retention.bytes": "-1"}
DECIDES_DELETION = frozenset({"cleanup.policy", *RETAIN_FOREVER})
FIRST_SAFE_PRODUCER_ID = 2**40
"""First producer ID if those in use are unknown; no cluster has ever reached it."""
MIN_INSYNC_REPLICAS = "min.insync.replicas"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@dataclass(slots=True)
class Adoption:
    """Everything to take over from a data directory."""

    topics: list[FoundTopic] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    """Metadata to create in addition to the topics."""
    acls: list[AclBinding] = field(default_factory=list)
    """ACLs to create, each once."""
    quotas: dict[QuotaEntity, dict[QuotaKey, float]] = field(default_factory=dict)
    """Client quotas to create."""
    notes: list[str] = field(default_factory=list)
    """Log messages about settings that could not be taken over unchanged."""


# ------------------------------------------------------------------------------------- identity


def directory_owner(directories: Iterable[LogDirectory]) -> DirectoryOwner | None:
    """Return the owner recorded in the directories, or None if all of them are new."""
    return next(filter(None, (directory.owner() for directory in directories)), None)


def with_node_id(config: BrokerConfig, owner: DirectoryOwner | None) -> BrokerConfig:
    """Return the config with the node.id of the directory, if none is configured."""
    if owner is None or {"node.id", "broker.id"} & config.static.keys():
        return config
    return BrokerConfig({**config.static, "node.id": str(owner.node_id)})


# --------------------------------------------------------------------------------------- topics


def adopt(
    fs: FileSystem,
    found: Sequence[FoundLog],
    config: BrokerConfig,
    existing_users: Collection[str] = (),
) -> Adoption:
    """Read Kafka's metadata from disk and decide what to adopt; log the result.

    Args:
        fs: Access to the data directories.
        found: Logs on disk that have not been opened.
        config: The broker's configuration.
        existing_users: Users that Ottla's own metadata has; they are not taken over.

    Raises:
        UserError: The directories contain ACLs or quotas that this broker would not enforce.
    """
    kraft = read_kraft_metadata(fs, metadata_directories(config))
    if not found and kraft is None:
        return Adoption()
    problem = protection_problem(kraft, config)
    if problem is not None:
        raise UserError(problem)
    epochs = {log.path: _latest_epoch(fs, log.path) for log in found}
    adoption = decide_adoption(found, epochs, kraft, config, existing_users)
    for topic in adoption.topics:
        logger.info(
            "Imported topic %s from the data directories, with %d partitions and the configs %s",
            topic.name,
            topic.partition_count,
            dict(topic.configs),
        )
    if adoption.acls:
        logger.info("Imported %d ACLs from the data directories", len(adoption.acls))
    if adoption.quotas:
        number = len(adoption.quotas)
        logger.info("Imported the client quotas of %d entities from the data directories", number)
    for note in adoption.notes:
        logger.warning("%s", note)
    return adoption


def metadata_directories(config: BrokerConfig) -> list[str]:
    """Return the directories that may contain Kafka's metadata log, the most likely one first."""
    metadata_dir = config.static.get("metadata.log.dir")
    return ([metadata_dir] if metadata_dir else []) + list(config.log_dirs)


def protection_problem(kraft: KraftMetadata | None, config: BrokerConfig) -> str | None:
    """Return why a directory would lose its protection if it were taken over, or None.

    Args:
        kraft: Kafka's metadata, or None if there is none.
        config: The broker's configuration.
    """
    if kraft is None:
        return None
    acls = kraft.image.acls
    found = "The data directories contain"
    if acls and not config.authorizer_class_name:
        return (
            f"{found} {_count(len(acls), 'ACL')} of Apache Kafka, but authorizer.class.name is not "
            "set, so that everybody could read and write every topic. Set "
            f"authorizer.class.name={STANDARD_AUTHORIZER} and super.users as in Apache Kafka"
        )
    unreadable = sum(each is None for each in acls.values())
    if unreadable:
        return (
            f"{found} {_count(unreadable, 'ACL')} of Apache Kafka that this version of Ottla "
            "cannot read, so that clients could do what Apache Kafka denied them. Remove them in "
            "Apache Kafka with kafka-acls --remove"
        )
    unknown = sum(not _is_known(each) for each in kraft.image.quotas)
    if unknown:
        return (
            f"{found} {_count(unknown, 'client quota')} of Apache Kafka that this version of Ottla "
            "does not know, so that clients could exceed them. Remove them in Apache Kafka with "
            "kafka-configs --alter --delete-config"
        )
    return None


def protection_ops(adoption: Adoption, image: ClusterImage) -> list[Op]:
    """Return the operations that create the adopted ACLs and quotas, unless they exist.

    They need no checks: nobody else changes the metadata of a standalone broker that starts.
    """
    acls = [each for each in adoption.acls if each not in image.acls.bindings]
    quotas = {key: each for key, each in adoption.quotas.items() if key not in image.quotas}
    return [*image.acls.ops_to_add(acls)[0], *tree.quota_ops(image.quotas, quotas)]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _adopted_quota(quota: KraftQuota) -> tuple[QuotaEntity, QuotaKey]:
    """Return what a quota limits. Raises ValueError if this version does not know it."""
    parts = {kind: DEFAULT if name is None else name for kind, name in quota.entity}
    entity = QuotaEntity.of(parts)
    if entity.parts.keys() != parts.keys():
        raise ValueError("the entity has parts of an unknown type")
    return entity, QuotaKey(quota.key)


def _is_known(quota: KraftQuota) -> bool:
    try:
        _adopted_quota(quota)
    except ValueError:
        return False
    return True


def _latest_epoch(fs: FileSystem, path: str) -> int:
    epochs = LeaderEpochCache(fs, path)
    try:
        epochs.load()
    except (MalformedCheckpoint, ValueError):
        return -1
    return epochs.latest_epoch


def decide_adoption(
    found: Sequence[FoundLog],
    epochs: Mapping[str, int],
    kraft: KraftMetadata | None,
    config: BrokerConfig,
    existing_users: Collection[str] = (),
) -> Adoption:
    """Decide what to adopt, without any I/O.

    Args:
        found: Logs on disk that have not been opened.
        epochs: Latest leader epoch of each log, by path.
        kraft: Kafka's metadata, or None if there is none.
        config: The broker's configuration.
        existing_users: Users that Ottla's own metadata has.
    """
    if kraft is None:
        adoption = _without_metadata(found, epochs, config)
    else:
        adoption = _with_metadata(found, epochs, kraft, config)
        users = kraft.image.scram
        adoption.ops += tree.scram_ops(
            {}, {user: users[user] for user in sorted(users.keys() - set(existing_users))}
        )
        adoption.acls = [*dict.fromkeys(filter(None, kraft.image.acls.values()))]
        for quota, value in kraft.image.quotas.items():
            entity, key = _adopted_quota(quota)
            adoption.quotas.setdefault(entity, {})[key] = value
    next_id = FIRST_SAFE_PRODUCER_ID if kraft is None else kraft.image.next_producer_id
    adoption.ops.append(Create(tree.PRODUCER_IDS, tree.encode({"next": next_id})))
    return adoption


def _without_metadata(
    found: Sequence[FoundLog], epochs: Mapping[str, int], config: BrokerConfig
) -> Adoption:
    adoption = Adoption()
    for name, logs in _by_topic(found).items():
        if topic_name_error(name) is not None:
            continue
        internal = internal_topic(name, config, 1)
        configs = RETAIN_FOREVER
        if internal is not None:
            configs = {key: value for key, value in internal.configs if value is not None}
        count = max(logs) + 1
        ids = Counter(log.topic_id for log in logs.values() if log.topic_id is not None)
        topic_id = ids.most_common(1)[0][0] if ids else ZERO_UUID
        known = [epochs[logs[index].path] if index in logs else -1 for index in range(count)]
        adoption.topics.append(_found_topic(name, topic_id, configs, known))
    adoption.notes.append(
        "The data directories contain no Kafka metadata, so the configs of the topics are "
        "unknown. Their records are retained without limit until you set retention.ms "
        "(kafka-configs --alter)"
    )
    return adoption


def _with_metadata(
    found: Sequence[FoundLog],
    epochs: Mapping[str, int],
    kraft: KraftMetadata,
    config: BrokerConfig,
) -> Adoption:
    image = kraft.image
    adoption = Adoption()
    logs_by_topic = _by_topic(found)
    for topic_id, topic in sorted(image.topics.items(), key=lambda item: item[1].name):
        logs = {
            partition: log
            for partition, log in logs_by_topic.get(topic.name, {}).items()
            if log.topic_id in (None, topic_id) and partition in topic.leader_epochs
        }
        if not logs:
            continue
        configs = _adopted_configs(topic.name, kraft, config, adoption.notes)
        known = [
            max(epoch, epochs[logs[index].path] if index in logs else -1)
            for index, epoch in sorted(topic.leader_epochs.items())
        ]
        if len(logs) < len(known):
            missing = sorted(topic.leader_epochs.keys() - logs.keys())
            adoption.notes.append(
                f"Partitions {missing} of topic {topic.name} are not in the data directories; "
                "they start empty"
            )
        adoption.topics.append(_found_topic(topic.name, topic_id, configs, known))
    adoption.ops += _broker_config_ops(image, config, adoption.notes)
    adoption.notes += _ignored_metadata(kraft)
    return adoption


def _found_topic(
    name: str, topic_id: bytes, configs: Mapping[str, str], known_epochs: Sequence[int]
) -> FoundTopic:
    epochs = tuple(epoch + 1 for epoch in known_epochs)
    return FoundTopic(name, topic_id, len(epochs), configs, epochs)


def _by_topic(found: Iterable[FoundLog]) -> dict[str, dict[int, FoundLog]]:
    topics: dict[str, dict[int, FoundLog]] = {}
    for log in sorted(found, key=lambda each: each.partition):
        topics.setdefault(log.partition.topic, {})[log.partition.partition] = log
    return topics


# -------------------------------------------------------------------------------------- configs


def _adopted_configs(
    topic: str, kraft: KraftMetadata, config: BrokerConfig, notes: list[str]
) -> dict[str, str]:
    overrides = kraft.image.topic_configs.get(topic, {})
    configs = {} if kraft.is_certain else dict(RETAIN_FOREVER)
    for name, value in overrides.items():
        problem = _topic_config_problem(name, value, config)
        if problem is None:
            configs[name] = value
            continue
        notes.append(f"Topic {topic}: {name}={value} is not imported: {problem}")
        if name in DECIDES_DELETION:
            configs = {**configs, **RETAIN_FOREVER}
    return configs


def _topic_config_problem(name: str, value: str, config: BrokerConfig) -> str | None:
    if name not in TOPIC:
        return "Ottla does not support it"
    if name == MIN_INSYNC_REPLICAS and value.strip() != "1":
        return "a single broker has one replica, so every write would fail"
    try:
        topic_config(config, {name: value})
    except KafkaError as error:
        return str(error.message)
    return None


def _broker_config_ops(image: KraftImage, config: BrokerConfig, notes: list[str]) -> list[Op]:
    ops: list[Op] = []
    for resource in ("", str(config.node_id)):
        adopted = {}
        for name, value in image.broker_configs.get(resource, {}).items():
            problem = _broker_config_problem(name, value, config)
            if problem is None:
                adopted[name] = value
            else:
                notes.append(f"The broker property {name}={value} is not imported: {problem}")
        if adopted:
            ops.append(Create(tree.broker_config_path(resource), tree.encode(adopted)))
    return ops


def _broker_config_problem(name: str, value: str, config: BrokerConfig) -> str | None:
    if name not in BROKER:
        return "Ottla does not support it"
    if name == MIN_INSYNC_REPLICAS and value.strip() != "1":
        return "a single broker has one replica, so every write would fail"
    try:
        config.with_dynamic({}, {name: value})
    except KafkaError as error:
        return str(error.message)
    return None


def _ignored_metadata(kraft: KraftMetadata) -> list[str]:
    notes = [
        f"Kafka's {what} are not imported: Ottla does not support them yet"
        for key, what in NOT_MIGRATED.items()
        if kraft.image.other_records[key]
    ]
    if not kraft.is_certain:
        notes.append(
            "Part of Kafka's metadata log cannot be read. Records of topics whose retention is "
            "unknown are retained without limit until you set retention.ms. ACLs and quotas may be "
            "missing, too: compare the output of kafka-acls --list and kafka-configs --describe "
            "with what you expect"
        )
    return notes
