"""A broker with an authorizer, prepared for the cases: logins, resources, and ACLs that change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any, NamedTuple

from tests.integration.security.acl_broker import EVERYTHING, creation, described, filter_of
from tests.integration.security.authorization.case import (
    TOKEN_OWNER,
    Case,
    Listener,
    Subject,
)
from tests.integration.transactions.producer import TransactionalProducer
from tests.raw_client import Api, RawClient, eventually

from ottla.base.acl import AclBinding, AclResourceType
from ottla.base.errors import ErrorCode

MISSING_ID = bytes(range(16))
TRANSACTION_TIMEOUT_MS = 600_000
"""Longer than the cases take, because they share a transaction."""
HOST = "127.0.0.1"


class Login(NamedTuple):
    """A user with a password for SASL PLAIN."""

    name: str
    password: str

    @property
    def principal(self) -> str:
        return f"User:{self.name}"

    def open(self, port: int) -> RawClient:
        """Open a connection that is authenticated as the user."""
        client = RawClient(port, HOST, reads_with_kio=False)
        answer = client.call(Api.SASL_HANDSHAKE, mechanism="PLAIN")
        assert answer.error_code == 0, answer
        token = f"\0{self.name}\0{self.password}".encode()
        answer = client.call(Api.SASL_AUTHENTICATE, 2, auth_bytes=token)
        assert answer.error_code == 0, answer
        return client


@dataclass(frozen=True)
class Target:
    """A broker: its listeners on this machine, a super user, and a user without permissions."""

    ports: Mapping[Listener, int]
    admin: Login
    client: Login


class Scene:
    """The cases' resources on a broker. As a context manager it closes its connections."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._numbers = count(1)
        self._connections: dict[tuple[Login, int], RawClient] = {}
        self.admin = self.connection(target.admin, Listener.CLIENT)
        self.served = {
            each.api_key: range(each.min_version, each.max_version + 1)
            for each in self.admin.call(Api.API_VERSIONS, 3, **SOFTWARE).api_keys
        }
        """API key -> versions that the broker serves."""
        self._acls: set[AclBinding] = set()

    def __enter__(self) -> Scene:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._connections.values():
            each.close()

    def connection(self, login: Login, listener: Listener) -> RawClient:
        """Return the connection of a user to a listener."""
        key = login, self.target.ports[listener]
        if key not in self._connections:
            self._connections[key] = login.open(key[1])
        return self._connections[key]

    def reconnect(self) -> None:
        """Replace all connections, after one of them has failed."""
        for each in self._connections.values():
            each.close()
        self._connections.clear()
        self.admin = self.connection(self.target.admin, Listener.CLIENT)

    # ----------------------------------------------------------------------------- resources

    def versions(self, case: Case) -> list[int]:
        """Return those versions of a case that the broker serves."""
        served = self.served.get(case.api, ())
        if case.listener is Listener.CONTROLLER:  # Kafka's brokers do not list its APIs
            served = case.versions
        return [each for each in case.versions if each in served]

    def subject(self, case: Case, exists: bool) -> Subject:
        """Return what a case asks about."""
        if exists:
            return self.existing
        name = self.new_name("missing")
        changes: dict[str, Any] = {
            AclResourceType.TOPIC: {"topic": name, "topic_id": MISSING_ID},
            AclResourceType.GROUP: {"group": name},
            AclResourceType.TRANSACTIONAL_ID: {"transactional_id": name},
        }[case.subject]
        return self.existing._replace(exists=False, **changes)

    @cached_property
    def existing(self) -> Subject:
        """A topic, a group with a committed offset of it, an open transaction with both, and a
        token."""
        topic, topic_id = self.new_topic()
        group = self.new_name("group")
        self.commit(group, topic)
        producer = self.begin(topic, group)
        token = self.admin.call(
            Api.CREATE_DELEGATION_TOKEN,
            3,
            owner_principal_type="User",
            owner_principal_name=TOKEN_OWNER,
            renewers=[],
            max_lifetime_ms=-1,
        )
        assert token.error_code == 0, token
        return Subject(topic, topic_id, group, producer.id, producer.producer_id, token.token_id)

    def new_name(self, beginning: str) -> str:
        """Return a name that nothing else has."""
        return f"{beginning}-{next(self._numbers):04}"

    def new_topic(self) -> tuple[str, bytes]:
        """Create a topic, and return its name and ID."""
        name = self.new_name("topic")
        return name, self.create(name)

    def create(self, topic: str) -> bytes:
        """Create a topic, wait until it has a leader, and return its ID."""
        topic_id = self.admin.create_topic(topic)
        eventually(lambda: self.admin.list_offset(topic, -1).error_code, is_zero)
        return topic_id

    def commit(self, group: str, topic: str = "") -> None:
        """Create a group by committing an offset, by default of the topic that cases share."""
        eventually(lambda: self._find(group, 0), is_zero)
        partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        body = {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [{"name": topic or self.existing.topic, "partitions": [partition]}],
        }

        def code() -> int:
            answer = self.admin.call(Api.OFFSET_COMMIT, 8, **body)
            return int(answer.topics[0].partitions[0].error_code)

        eventually(code, is_zero)

    def begin(self, topic: str, group: str) -> TransactionalProducer:
        """Begin a transaction with a partition and the offsets of a group."""
        producer = TransactionalProducer(self.admin, self.new_name("transaction"))
        timeout = {"timeout_ms": TRANSACTION_TIMEOUT_MS}
        eventually(lambda: self._find(producer.id, 1), is_zero)
        eventually(lambda: producer.init(**timeout), is_zero)
        eventually(lambda: producer.add(topic), is_zero)
        eventually(lambda: producer.add_offsets(group), is_zero)
        return producer

    def _find(self, key: str, type: int) -> int:
        return int(self.admin.call(Api.FIND_COORDINATOR, 3, key=key, key_type=type).error_code)

    # --------------------------------------------------------------------------------- ACLs

    def set_acls(self, wanted: Iterable[AclBinding]) -> None:
        """Make the ACLs of the broker the wanted ones, and wait until it applies them."""
        new = set(wanted)
        if new == self._acls:
            return
        if gone := self._acls - new:
            filters = [filter_of(each) for each in gone] if new else [EVERYTHING]
            answer = self.admin.call(Api.DELETE_ACLS, filters=filters)
            assert not any(each.error_code for each in answer.filter_results), answer
        if more := new - self._acls:
            answer = self.admin.call(Api.CREATE_ACLS, creations=[creation(each) for each in more])
            assert not any(each.error_code for each in answer.results), answer
        self._acls = new
        for port in {*self.target.ports.values()}:
            listener = next(each for each in Listener if self.target.ports[each] == port)
            admin = self.connection(self.target.admin, listener)
            eventually(lambda admin=admin: described(admin), lambda found: found == new)


SOFTWARE = {"client_software_name": "raw", "client_software_version": "1"}


def is_zero(code: int) -> bool:
    return code == ErrorCode.NONE
