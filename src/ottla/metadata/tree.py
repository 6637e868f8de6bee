"""Paths and value formats of the cluster's tree in the metadata store.

    /cluster                {"cluster_id"}
    /controller/epoch       {"controller_id"}; its version is the controller epoch
    /controller/leader      {"id"}, ephemeral
    /registrations/<id>     {"endpoints": {listener: [host, port]}, "rack", "clean_from"}, never
                            deleted; its version is the broker's incarnation
    /live/<id>              {}, ephemeral
    /draining/<id>          {}, ephemeral: the broker is shutting down, its leaders must move
    /leases/<id>            {"renewal": count} or {"released": true}; changes continuously, so it is
                            watched separately and not part of the image
    /topics/<topic id>      {"name", "configs", "partitions": count}
    /topics/<topic id>/<p>  {"leader", "leader_epoch", "isr": [[id, incarnation]], "replicas",
                            "adding"?, "removing"?}; its version is the partition epoch
    /configs/brokers/<id>   {name: value}; `default` in place of an id applies to every broker
    /configs/groups/<name>  {name: value}; the group id is percent-encoded
    /producer_ids           {"next"}: the first producer id that has not been allocated
    /access/scram/<user>    {mechanism: {"salt", "stored_key", "server_key", "iterations"}};
                            the user is percent-encoded, salts and keys are in base64
    /access/tokens/<id>     {"owner": [type, name], "requester", "renewers": [[type, name]],
                            "issued", "expires", "max"}: a delegation token, with times in
                            milliseconds; its HMAC is not stored
    /access/acls/<number>   up to 128 ACLs; see `ottla.metadata.acl_tree`
    /access/quotas/<entity> {key: value}: the client quotas of `user=<name>`, `client-id=<name>`,
                            `user=<name>,client-id=<name>` or `ip=<address>`; the names are
                            percent-encoded, and empty for the default

Everything below /access/ decides who may use the cluster, and how much. It takes effect at once,
see `ottla.metadata.follower`. It contains credentials: never log its values.

Values are JSON. A topic exists once its node and the nodes of all its partitions exist.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from ottla.base.cluster import BrokerRegistration, Endpoint, PartitionState, TopicImage
from ottla.base.delegation_token import DelegationToken
from ottla.base.metadata import ACCESS, Check, Create, Delete, Node, Op, Replace
from ottla.base.principal import Principal
from ottla.base.quota import QuotaEntity, QuotaKey
from ottla.base.scram import ScramCredential, ScramMechanism
from ottla.base.types import format_uuid

CLUSTER = "/cluster"
CONTROLLER = "/controller/"
CONTROLLER_EPOCH = f"{CONTROLLER}epoch"
CONTROLLER_LEADER = f"{CONTROLLER}leader"
REGISTRATIONS = "/registrations/"
LIVE = "/live/"
DRAINING = "/draining/"
LEASES = "/leases/"
TOPICS = "/topics/"
BROKER_CONFIGS = "/configs/brokers/"
GROUP_CONFIGS = "/configs/groups/"
PRODUCER_IDS = "/producer_ids"
SCRAM = f"{ACCESS}scram/"
TOKENS = f"{ACCESS}tokens/"
QUOTAS = f"{ACCESS}quotas/"
DEFAULT = "default"

_dumps = json.JSONEncoder(separators=(",", ":")).encode


def encode(value: Mapping[str, Any]) -> bytes:
    return _dumps(value).encode()


def decode(node: Node) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(node.value)
    return decoded


def _quoted(name: str) -> str:
    quoted = quote(name, safe="")
    if quoted in (".", ".."):  # ZooKeeper does not allow them in a path
        return quoted.replace(".", "%2E")
    return quoted


def controller_checks(epoch: int) -> list[Check]:
    """Return the checks that every commit of a controller depends on.

    No other controller may have been elected since, and the session in which this one was elected
    must not have ended. Without the second check, a commit that is retried in a new session could
    be carried out by a broker that is no longer the controller. Each controller creates its own
    leader node, and no broker modifies it.

    Args:
        epoch: The controller epoch in which the broker was elected.
    """
    return [Check(CONTROLLER_EPOCH, epoch), Check(CONTROLLER_LEADER, 0)]


# ------------------------------------------------------------------------------------- topics


class TopicNode(NamedTuple):
    name: str
    configs: dict[str, str]
    partition_count: int
    version: int


def topic_path(topic_id: bytes) -> str:
    return TOPICS + format_uuid(topic_id)


def partition_path(topic_id: bytes, partition: int) -> str:
    return f"{topic_path(topic_id)}/{partition}"


def encode_topic(name: str, configs: Mapping[str, str], partition_count: int) -> bytes:
    return encode({"name": name, "configs": dict(configs), "partitions": partition_count})


def decode_topic(node: Node) -> TopicNode:
    fields = decode(node)
    return TopicNode(fields["name"], fields["configs"], fields["partitions"], node.version)


@lru_cache(maxsize=4096)
def encode_partition(state: PartitionState) -> bytes:
    fields: dict[str, Any] = {
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": list(zip(state.isr, state.isr_incarnations, strict=True)),
        "replicas": state.replicas,
    }
    if state.adding:
        fields["adding"] = state.adding
    if state.removing:
        fields["removing"] = state.removing
    return encode(fields)


@lru_cache(maxsize=4096)
def decode_partition(node: Node) -> PartitionState:
    fields = decode(node)
    return PartitionState(
        leader=fields["leader"],
        leader_epoch=fields["leader_epoch"],
        isr=tuple(broker for broker, _ in fields["isr"]),
        replicas=tuple(fields["replicas"]),
        adding=tuple(fields.get("adding", ())),
        removing=tuple(fields.get("removing", ())),
        partition_epoch=node.version,
        isr_incarnations=tuple(incarnation for _, incarnation in fields["isr"]),
    )


def create_topic_ops(topic: TopicImage) -> list[Op]:
    """Return the operations that create a topic and all its partitions."""
    path = topic_path(topic.topic_id)
    ops: list[Op] = [Create(path, encode_topic(topic.name, topic.configs, len(topic.partitions)))]
    ops += create_partition_ops(topic.topic_id, 0, topic.partitions)
    return ops


def create_partition_ops(
    topic_id: bytes, first: int, partitions: Sequence[PartitionState]
) -> list[Create]:
    """Return the operations that create the nodes of partitions `first` and following."""
    path = topic_path(topic_id)
    return [
        Create(f"{path}/{index}", encode_partition(state))
        for index, state in enumerate(partitions, first)
    ]


def add_partitions_ops(topic: TopicImage, added: Sequence[PartitionState]) -> list[Op]:
    """Return the operations that add partitions to a topic."""
    first = len(topic.partitions)
    value = encode_topic(topic.name, topic.configs, first + len(added))
    return [
        Replace(topic_path(topic.topic_id), value),
        *create_partition_ops(topic.topic_id, first, added),
    ]


def delete_topic_ops(topic: TopicImage) -> list[Op]:
    """Return the operations that delete a topic and all its partitions."""
    path = topic_path(topic.topic_id)
    ops: list[Op] = [Delete(f"{path}/{index}") for index in range(len(topic.partitions))]
    ops.append(Delete(path))
    return ops


def topic_unchanged(topic: TopicImage) -> Check:
    """Return a check that the topic's node has not changed."""
    return Check(topic_path(topic.topic_id), topic.version)


# ------------------------------------------------------------------------------------ brokers


def registration_path(broker_id: int) -> str:
    return f"{REGISTRATIONS}{broker_id}"


def live_path(broker_id: int) -> str:
    return f"{LIVE}{broker_id}"


def draining_path(broker_id: int) -> str:
    return f"{DRAINING}{broker_id}"


def lease_path(broker_id: int) -> str:
    return f"{LEASES}{broker_id}"


def encode_registration(registration: BrokerRegistration) -> bytes:
    return encode(
        {
            "endpoints": {name: list(at) for name, at in registration.endpoints.items()},
            "rack": registration.rack,
            "clean_from": registration.clean_from,
        }
    )


def decode_registration(broker_id: int, node: Node, *, fenced: bool) -> BrokerRegistration:
    fields = decode(node)
    return BrokerRegistration(
        id=broker_id,
        incarnation=node.version,
        endpoints={name: Endpoint(*at) for name, at in fields["endpoints"].items()},
        rack=fields["rack"],
        fenced=fenced,
        clean_from=fields["clean_from"],
    )


def broker_config_path(resource_name: str) -> str:
    """Return the path of a broker's dynamic configs.

    Args:
        resource_name: A broker id, or '' for the cluster-wide default.
    """
    return BROKER_CONFIGS + (resource_name or DEFAULT)


def group_config_path(group_id: str) -> str:
    return GROUP_CONFIGS + _quoted(group_id)


def group_of_path(path: str) -> str:
    return unquote(path[len(GROUP_CONFIGS) :])


# -------------------------------------------------------------------------------------- users


def scram_path(user: str) -> str:
    return SCRAM + _quoted(user)


def user_of_path(path: str) -> str:
    return unquote(path[len(SCRAM) :])


def encode_scram(credentials: Mapping[ScramMechanism, ScramCredential]) -> bytes:
    """Encode the SCRAM credentials of a user."""
    return encode(
        {
            mechanism.sasl_name: {
                "salt": b64encode(credential.salt).decode(),
                "stored_key": b64encode(credential.stored_key).decode(),
                "server_key": b64encode(credential.server_key).decode(),
                "iterations": credential.iterations,
            }
            for mechanism, credential in credentials.items()
        }
    )


def decode_scram(node: Node) -> dict[ScramMechanism, ScramCredential]:
    """Decode the SCRAM credentials of a user. Mechanisms of later versions are ignored."""
    fields = decode(node)
    return {
        mechanism: ScramCredential(
            salt=b64decode(entry["salt"], validate=True),
            stored_key=b64decode(entry["stored_key"], validate=True),
            server_key=b64decode(entry["server_key"], validate=True),
            iterations=int(entry["iterations"]),
        )
        for mechanism in ScramMechanism
        if (entry := fields.get(mechanism.sasl_name)) is not None
    }


def scram_ops(
    current: Mapping[str, Mapping[ScramMechanism, ScramCredential]],
    new: Mapping[str, Mapping[ScramMechanism, ScramCredential]],
) -> list[Op]:
    """Return the operations that replace the credentials of users.

    Args:
        current: The credentials of all users.
        new: All credentials of each changed user; a user without any is deleted.
    """
    ops: list[Op] = []
    for user, credentials in new.items():
        path = scram_path(user)
        if not credentials:
            if user in current:
                ops.append(Delete(path))
        elif user in current:
            ops.append(Replace(path, encode_scram(credentials)))
        else:
            ops.append(Create(path, encode_scram(credentials)))
    return ops


def token_path(token_id: str) -> str:
    return TOKENS + token_id


def encode_token(token: DelegationToken) -> bytes:
    """Encode a delegation token."""
    return encode(
        {
            "owner": _principal_fields(token.owner),
            "requester": _principal_fields(token.requester),
            "renewers": [_principal_fields(each) for each in token.renewers],
            "issued": token.issued_ms,
            "expires": token.expires_ms,
            "max": token.max_ms,
        }
    )


def decode_token(token_id: str, node: Node) -> DelegationToken:
    fields = decode(node)
    return DelegationToken(
        token_id=token_id,
        owner=_principal(fields["owner"]),
        requester=_principal(fields["requester"]),
        renewers=tuple(map(_principal, fields["renewers"])),
        issued_ms=int(fields["issued"]),
        expires_ms=int(fields["expires"]),
        max_ms=int(fields["max"]),
    )


def _principal_fields(principal: Principal) -> list[str]:
    return [principal.type, principal.name]


def _principal(fields: Sequence[str]) -> Principal:
    kind, name = fields
    return Principal(str(kind), str(name))


# ------------------------------------------------------------------------------------- quotas


def quota_path(entity: QuotaEntity) -> str:
    return QUOTAS + ",".join(
        f"{kind}={quote(name, safe='')}" for kind, name in entity.parts.items()
    )


def quota_entity_of_path(path: str) -> QuotaEntity:
    """Return the entity of a path. Raises ValueError if it is malformed."""
    parts: dict[str, str] = {}
    for part in path[len(QUOTAS) :].split(","):
        kind, _, name = part.partition("=")
        parts[kind] = unquote(name)
    entity = QuotaEntity.of(parts)
    if entity.parts.keys() != parts.keys():
        raise ValueError(f"{path} does not name an entity")
    return entity


def encode_quotas(values: Mapping[QuotaKey, float]) -> bytes:
    return encode({key.value: value for key, value in values.items()})


def decode_quotas(node: Node) -> dict[QuotaKey, float]:
    """Decode the quotas of an entity. Keys of later versions are ignored."""
    fields = decode(node)
    return {key: float(fields[key.value]) for key in QuotaKey if key.value in fields}


def quota_ops(
    current: Mapping[QuotaEntity, Mapping[QuotaKey, float]],
    new: Mapping[QuotaEntity, Mapping[QuotaKey, float]],
) -> list[Op]:
    """Return the operations that replace the quotas of entities.

    Args:
        current: The quotas of all entities.
        new: All quotas of each changed entity; an entity without any is deleted.
    """
    ops: list[Op] = []
    for entity, values in new.items():
        path = quota_path(entity)
        if not values:
            if entity in current:
                ops.append(Delete(path))
        elif entity in current:
            ops.append(Replace(path, encode_quotas(values)))
        else:
            ops.append(Create(path, encode_quotas(values)))
    return ops
