"""Tests of the order in which a password reaches the disk and the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.base.acl import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclResourceType,
    PatternType,
)
from ottla.base.config.properties import load_properties
from ottla.base.errors import ErrorCode, UserError
from ottla.cli.secure.init import Initializer
from ottla.cli.secure.layout import SecureDirectory
from ottla.cli.secure.permissions import Permissions
from ottla.cli.secure.plan import plan_brokers
from ottla.cli.secure.texts import Login
from ottla.cli.secure.users import (
    Profiles,
    add_user,
    change_password,
    list_users,
    read_password,
    remove_user,
)
from ottla.client.admin import Admin, ScramMechanism, UserScramCredentialUpsertion
from ottla.client.admin.users import ScramCredentialInfo
from ottla.client.errors import ClientError


class Cluster:
    """The users of a cluster, in place of an admin client."""

    def __init__(self) -> None:
        self.passwords: dict[tuple[str, ScramMechanism], str] = {}
        self.acls: list[AclBinding] | None = []
        self.fails = False

    def describe_user_scram_credentials(self) -> dict[str, list[ScramCredentialInfo]]:
        found: dict[str, list[ScramCredentialInfo]] = {}
        for user, mechanism in self.passwords:
            found.setdefault(user, []).append(ScramCredentialInfo(mechanism, 4096))
        return found

    def describe_acls(self, filter: AclFilter | None = None) -> list[AclBinding]:
        if self.acls is None:
            raise ClientError("No authorizer is configured.", code=ErrorCode.SECURITY_DISABLED)
        return [each for each in self.acls if (filter or AclFilter()).matches(each)]

    def create_acls(self, acls: list[AclBinding]) -> None:
        assert self.acls is not None
        self.acls += acls

    def delete_acls(self, acls: list[AclBinding]) -> None:
        assert self.acls is not None
        self.acls = [each for each in self.acls if each not in acls]

    def alter_user_scram_credentials(self, alterations: Sequence[Any]) -> None:
        if self.fails:
            raise ClientError("The cluster is down.")
        for each in alterations:
            key = (each.user, each.mechanism)
            if isinstance(each, UserScramCredentialUpsertion):
                self.passwords[key] = each.password
            else:
                del self.passwords[key]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def admin(cluster: Cluster) -> Admin:
    return cast("Admin", cluster)


@pytest.fixture
def profiles(tmp_path: Path) -> Profiles:
    directory = SecureDirectory(tmp_path / "secure")
    making = Initializer(
        directory,
        plan_brokers([]),
        lambda plan: "/data",
        lambda properties, logins, *, replaces: None,
        now=datetime.now(UTC),
    )
    making.make_files()
    making.make_users()
    return Profiles(directory, load_properties(str(directory.admin_profile)))


def test_a_new_user_has_a_profile_with_its_password(
    admin: Admin, cluster: Cluster, profiles: Profiles
) -> None:
    written = add_user(admin, profiles, Login("alice", "secret"))
    assert cluster.passwords == {("alice", ScramMechanism.SCRAM_SHA_512): "secret"}
    assert written == list(profiles.files("alice"))
    found = load_properties(str(written[0]))
    own = load_properties(str(profiles.directory.admin_profile))
    assert 'username="alice" password="secret"' in found.pop("sasl.jaas.config")
    assert found.items() <= own.items()


def test_a_user_that_the_cluster_refuses_has_no_profile(
    admin: Admin, cluster: Cluster, profiles: Profiles
) -> None:
    cluster.fails = True
    with pytest.raises(ClientError):
        add_user(admin, profiles, Login("alice", "secret"))
    assert list(profiles.directory.users.iterdir()) == []


def test_a_password_that_the_cluster_refuses_leaves_the_profile_as_it_is(
    admin: Admin, cluster: Cluster, profiles: Profiles
) -> None:
    path, _ = add_user(admin, profiles, Login("alice", "secret"))
    before = path.read_bytes()
    cluster.fails = True
    with pytest.raises(ClientError):
        change_password(admin, profiles, "alice", "other")
    assert path.read_bytes() == before


def test_all_mechanisms_of_a_user_get_the_new_password_and_the_rest_of_the_profile_remains(
    admin: Admin, cluster: Cluster, profiles: Profiles
) -> None:
    path, _ = add_user(admin, profiles, Login("alice", "secret"))
    cluster.passwords["alice", ScramMechanism.SCRAM_SHA_256] = "secret"
    with path.open("a") as file:
        file.write("# mine\nclient.id=alice's\n")
    change_password(admin, profiles, "alice", "other")
    assert set(cluster.passwords.values()) == {"other"}
    assert path.read_text().endswith("# mine\nclient.id=alice's\n")
    assert 'password="other"' in load_properties(str(path))["sasl.jaas.config"]
    remove_user(admin, profiles, "alice")
    assert cluster.passwords == {}
    assert list(profiles.directory.users.iterdir()) == []


def test_a_profile_of_somebody_else_is_not_overwritten(
    admin: Admin, cluster: Cluster, profiles: Profiles
) -> None:
    profiles.directory.users.mkdir()
    path, _ = profiles.files("alice")
    path.write_text("mine")
    with pytest.raises(UserError, match=r"exists, but the user alice does not"):
        add_user(admin, profiles, Login("alice", "secret"))
    assert (path.read_text(), cluster.passwords) == ("mine", {})


def test_without_a_directory_profiles_are_written_here(
    admin: Admin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trusted.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    elsewhere = Profiles(
        SecureDirectory(tmp_path / "absent"),
        {"security.protocol": "SASL_SSL", "ssl.truststore.location": "trusted.pem"},
        "kafka:9092",
    )
    add_user(admin, elsewhere, Login("alice", "secret"))
    found = load_properties("alice.properties")
    assert found["bootstrap.servers"] == "kafka:9092"
    assert found["ssl.truststore.certificates"] == "-----BEGIN CERTIFICATE-----\n"
    assert f"ssl.ca.location={tmp_path}/trusted.pem\n" in (tmp_path / "alice.conf").read_text()
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize(
    ("properties", "user"),
    [
        ({}, ""),
        ({"sasl.username": "bob"}, "bob"),
        ({"sasl.jaas.config": 'x.ScramLoginModule required username="a\\"b" password="c";'}, 'a"b'),
        ({"sasl.jaas.config": "x.ScramLoginModule required username=bob password=c;"}, "bob"),
    ],
)
def test_the_administrator_is_the_user_of_the_profile(
    tmp_path: Path, properties: dict[str, str], user: str
) -> None:
    assert Profiles(SecureDirectory(tmp_path), properties).administrator == user


def test_only_the_first_line_of_a_file_is_the_password(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("a secret\nsecond\n")
    assert read_password(str(path)) == "a secret"
    for content, reason in ((b"\xff\n", "UTF-8"), (b" a\n", "spaces at its ends"), (b"", "empty")):
        path.write_bytes(content)
        with pytest.raises(UserError, match=reason):
            read_password(str(path))


# ------------------------------------------------------------------------------------------- ACLs


def test_permissions_become_acls() -> None:
    given = Permissions(["orders"], ["audit-*"], ["*"], ["t"]).acls("alice")
    topic, group = AclResourceType.TOPIC, AclResourceType.GROUP
    assert [
        (each.resource_type, each.pattern_type, each.name, each.operation) for each in given
    ] == [
        (topic, PatternType.LITERAL, "orders", AclOperation.WRITE),
        (topic, PatternType.LITERAL, "orders", AclOperation.DESCRIBE),
        (topic, PatternType.LITERAL, "orders", AclOperation.CREATE),
        (topic, PatternType.PREFIXED, "audit-", AclOperation.READ),
        (topic, PatternType.PREFIXED, "audit-", AclOperation.DESCRIBE),
        (group, PatternType.LITERAL, "*", AclOperation.READ),
        (AclResourceType.TRANSACTIONAL_ID, PatternType.LITERAL, "t", AclOperation.WRITE),
        (AclResourceType.TRANSACTIONAL_ID, PatternType.LITERAL, "t", AclOperation.DESCRIBE),
    ]
    assert {(each.principal, each.host) for each in given} == {("User:alice", "*")}
    with pytest.raises(UserError, match="The name of a topic must not be empty"):
        Permissions([""]).acls("alice")


def test_a_user_is_created_with_acls(admin: Admin, cluster: Cluster, profiles: Profiles) -> None:
    acls = Permissions(["orders"]).acls("alice")
    add_user(admin, profiles, Login("alice", "secret"), acls)
    assert cluster.acls == acls
    found = list_users(admin)
    assert (found["alice"].mechanisms, found["alice"].acls) == (["SCRAM-SHA-512"], 3)


def test_acls_of_a_user_who_could_not_be_created_are_deleted(
    admin: Admin, cluster: Cluster, profiles: Profiles
) -> None:
    older, *others = Permissions(["orders"]).acls("alice")
    cluster.acls, cluster.fails = [older], True
    with pytest.raises(ClientError):
        add_user(admin, profiles, Login("alice", "secret"), [older, *others])
    assert cluster.acls == [older]
    assert not profiles.files("alice")[0].exists()


def test_no_user_is_created_if_the_cluster_cannot_limit_it(
    admin: Admin, cluster: Cluster, profiles: Profiles
) -> None:
    cluster.acls = None
    with pytest.raises(UserError, match="The cluster has no authorizer"):
        add_user(admin, profiles, Login("alice", "secret"), Permissions(["orders"]).acls("alice"))
    assert cluster.passwords == {}
    add_user(admin, profiles, Login("alice", "secret"))
    assert list_users(admin)["alice"].acls is None


def test_a_user_is_removed_with_its_acls(
    admin: Admin, cluster: Cluster, profiles: Profiles
) -> None:
    acls = Permissions(["orders"]).acls("bob")
    add_user(admin, profiles, Login("bob", "secret"), acls)
    add_user(admin, profiles, Login("alice", "secret"), Permissions(["orders"]).acls("alice"))
    deleted, count = remove_user(admin, profiles, "alice")
    assert (deleted, count) == (list(profiles.files("alice")), 3)
    assert cluster.acls == acls


def test_acls_that_a_failed_removal_has_left_can_be_removed(
    admin: Admin, cluster: Cluster, profiles: Profiles
) -> None:
    cluster.acls = Permissions(["orders"]).acls("alice")
    assert remove_user(admin, profiles, "alice") == ([], 3)
    with pytest.raises(UserError, match="does not exist"):
        remove_user(admin, profiles, "alice")
