"""Nodes that only brokers can access, at a ZooKeeper that lets everybody connect."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result
from tests.integration.cluster.zookeeper_access import opened, readable, refusal

from ottla.base.metadata import Create
from ottla.cli.main import ottla
from ottla.metadata.zookeeper.ensemble import EnsembleMember

OPEN = {
    "zookeeper.auth.scheme": "digest",
    "zookeeper.auth.user": "b",
    "zookeeper.auth.password": "p",
}
CLOSED = {**OPEN, "zookeeper.set.acl": "true"}
NOBODY: dict[str, str] = {}


def write(connect: str, properties: dict[str, str]) -> None:
    """Do what a broker does: join, write to the tree, and renew a lease."""

    async def use() -> None:
        store = await opened(connect, properties)
        store.watch("/leases", lambda revision, changes: None)
        topic = Create(f"/topics/{uuid4()}", b"topic")
        await store.txn([], [Create("/live/1", b"one", ephemeral=True), topic])
        await store.put("/leases/1", b"lease")
        await store.close()

    asyncio.run(use())


def migrated(*arguments: str) -> Result:
    return CliRunner().invoke(ottla, ["zookeeper-acl", *arguments])


@pytest.fixture
def settings(tmp_path: Path) -> str:
    file = tmp_path / "server.properties"
    file.write_text("node.id=7\n" + "".join(f"{name}={value}\n" for name, value in OPEN.items()))
    return str(file)


def test_a_stranger_can_read_no_node(zookeeper: EnsembleMember) -> None:
    write(f"{zookeeper.connect}/closed", CLOSED)
    found, count = readable(zookeeper.connect, CLOSED, NOBODY, "/closed")
    assert not found
    assert count > 10


def test_without_acls_everybody_can_read_every_node(zookeeper: EnsembleMember) -> None:
    write(f"{zookeeper.connect}/open", OPEN)
    found, count = readable(zookeeper.connect, OPEN, NOBODY, "/open")
    assert len(found) == count


@pytest.mark.parametrize("properties", [NOBODY, {**CLOSED, "zookeeper.auth.password": "wrong"}])
def test_a_broker_without_the_password_is_refused_in_a_sentence(
    properties: dict[str, str], zookeeper: EnsembleMember
) -> None:
    connect = f"{zookeeper.connect}/guarded"
    write(connect, CLOSED)
    assert refusal(connect, properties).startswith(
        "ZooKeeper denies this broker access to the nodes of the cluster at /guarded: they belong "
        "to another user."
    )


def test_a_server_without_sasl_is_named(zookeeper: EnsembleMember) -> None:
    sasl = {**OPEN, "zookeeper.auth.scheme": "sasl"}
    assert "does not offer SASL" in refusal(f"{zookeeper.connect}/sasl", sasl)


def test_open_nodes_are_reported_and_migrated(
    zookeeper: EnsembleMember, settings: str, caplog: pytest.LogCaptureFixture
) -> None:
    connect = f"{zookeeper.connect}/migrated"
    write(connect, NOBODY)
    caplog.set_level(logging.WARNING)

    async def join() -> None:
        await (await opened(connect, CLOSED)).close()

    asyncio.run(join())
    assert "everyone can access /migrated/tree in ZooKeeper" in caplog.text
    result = migrated(
        "--zookeeper.acl", "secure", "--zookeeper.connect", connect, "--enable.path.check",
        "--zk-tls-config-file", settings,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    found, count = readable(zookeeper.connect, CLOSED, NOBODY, "/migrated")
    assert not found
    assert result.output == f"{count} nodes are now accessible to the brokers' user only.\n"
    caplog.clear()
    asyncio.run(join())
    assert not caplog.text
    back = migrated(
        "--zookeeper.acl", "unsecure", "--zookeeper.connect", connect,
        "--zk-tls-config-file", settings,
    )  # fmt: skip
    assert back.output == f"{count} nodes are now accessible to everyone.\n"
    found, _ = readable(zookeeper.connect, CLOSED, NOBODY, "/migrated")
    assert len(found) == count


def test_a_migration_that_cannot_work_ends_in_a_sentence(
    zookeeper: EnsembleMember, settings: str, tmp_path: Path
) -> None:
    connect = f"{zookeeper.connect}/foreign"
    write(connect, {**CLOSED, "zookeeper.auth.user": "another"})
    place = ("--zookeeper.connect", connect)
    file = ("--zk-tls-config-file", settings)
    secure = ("--zookeeper.acl", "secure")
    cases = {
        "does not allow this user to change /foreign": (*secure, *place, *file),
        "ZooKeeper must know the user": (*secure, *place),
        "ZooKeeper has no node /nowhere.": (
            *secure, "--zookeeper.connect", f"{zookeeper.connect}/nowhere", *file,
        ),
        "Could not connect to ZooKeeper at 127.0.0.1:1 within 300 ms": (
            *secure, *file, "--zookeeper.connect", "127.0.0.1:1",
            "--zookeeper.connection.timeout", "300",
        ),
    }  # fmt: skip
    for sentence, arguments in cases.items():
        result = migrated(*arguments)
        assert result.exit_code != 0
        assert sentence in f"{result.output}{result.exception}"
