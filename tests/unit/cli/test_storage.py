"""Tests of `kafka-storage`: formatted directories, first users, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import sys
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.base.config.broker import BrokerConfig
from ottla.base.errors import UserError
from ottla.base.scram import (
    ScramCredential,
    ScramMechanism,
    derive_credential,
    new_credential,
    salt_password,
)
from ottla.base.types import parse_uuid
from ottla.broker.storage_format import store_users
from ottla.cli import kafka_storage
from ottla.testing.broker import EmbeddedBroker

CLUSTER_ID = "AAAAAAAAQACAAAAAAAAAAQ"
SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512


class Result(NamedTuple):
    exit_code: int
    output: str


Storage = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Storage:
    """Return a function that runs `kafka-storage` in this process."""

    def run(*arguments: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["kafka-storage", *arguments])
        with pytest.raises(SystemExit) as ended:
            kafka_storage.main()
        captured = capsys.readouterr()
        return Result(int(ended.value.code or 0), captured.out + captured.err)

    return run


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def storage(run: Storage, tmp_path: Path, home: Path) -> Storage:
    """Return a function that runs a command of `kafka-storage` with a configuration."""
    file = tmp_path / "server.properties"
    file.write_text(f"node.id=3\nlog.dirs={home},{home}-2\nlisteners=PLAINTEXT://127.0.0.1:0\n")

    return lambda command, *arguments: run(command, "--config", str(file), *arguments)


def format_with(storage: Storage, *users: str, options: tuple[str, ...] = ()) -> Result:
    added = [word for user in users for word in ("--add-scram", user)]
    return storage("format", "--cluster-id", CLUSTER_ID, *added, *options)


def matches(credential: ScramCredential | None, mechanism: ScramMechanism, password: str) -> bool:
    assert credential is not None
    salted = salt_password(mechanism, password, credential.salt, credential.iterations)
    derived = derive_credential(mechanism, salted, credential.salt, credential.iterations)
    return derived == credential


def users_at_start(
    home: Path, *others: str
) -> tuple[str, int, dict[str, dict[ScramMechanism, ScramCredential]]]:
    """Start a broker on the directory; return its cluster ID, node ID and users."""

    async def scenario() -> tuple[str, int, dict[str, dict[ScramMechanism, ScramCredential]]]:
        overrides = {"log.dirs": ",".join([str(home), *others])}
        async with EmbeddedBroker(home, overrides=overrides) as embedded:
            broker = embedded.broker
            users = {user: dict(found) for user, found in broker.image.scram.items()}
            return broker.cluster_id, broker.node_id, users

    return asyncio.run(scenario())


def test_a_broker_finds_the_users_and_the_cluster_id(storage: Storage, home: Path) -> None:
    salted = b64encode(salt_password(SHA_256, "raw", b"salt", 8192)).decode()
    result = format_with(
        storage,
        'SCRAM-SHA-512=[name="ad,min",password="s,e=c]ret"]',
        "SCRAM-SHA-256=[password=other,iterations=16384,name=alice]",
        f'SCRAM-SHA-256=[name=raw,iterations=8192,salt="c2FsdA==",saltedpassword="{salted}"]',
        "SCRAM-SHA-512=[name=alice,password=alice-512]",
        options=("--standalone",),
    )
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        "Added user ad,min with SCRAM-SHA-512.",
        "Added user alice with SCRAM-SHA-256, SCRAM-SHA-512.",
        "Added user raw with SCRAM-SHA-256.",
        f"Formatted data directory {home}.",
        f"Formatted data directory {home}-2.",
    ]
    cluster_id, node_id, users = users_at_start(home, f"{home}-2")
    assert (cluster_id, node_id) == (CLUSTER_ID, 3)
    assert {user: set(found) for user, found in users.items()} == {
        "ad,min": {SHA_512},
        "alice": {SHA_256, SHA_512},
        "raw": {SHA_256},
    }
    assert matches(users["ad,min"][SHA_512], SHA_512, "s,e=c]ret")
    assert matches(users["alice"][SHA_256], SHA_256, "other")
    assert matches(users["raw"][SHA_256], SHA_256, "raw")
    assert users["alice"][SHA_256].iterations == 16384


def test_formatted_directories_are_refused_or_left_unchanged(storage: Storage, home: Path) -> None:
    assert format_with(storage).exit_code == 0
    again = format_with(storage)
    assert again.exit_code == 1
    assert f"Log directory {home} is already formatted. Use --ignore-formatted" in again.output
    ignored = format_with(
        storage, "SCRAM-SHA-512=[name=late,password=x]", options=("--ignore-formatted",)
    )
    assert ignored.exit_code == 0
    assert ignored.output == "All of the log directories are already formatted.\n"
    (Path(f"{home}-2") / "meta.properties").unlink()
    other = storage("format", "-g", "-t", "AAAAAAAAQACAAAAAAAAAAg")
    assert other.exit_code == 1
    assert f"{home} belongs to cluster {CLUSTER_ID}" in other.output
    partly = format_with(storage, options=("-g",))
    assert partly.output == f"Formatted data directory {home}-2.\n"
    assert users_at_start(home, f"{home}-2")[2] == {}


def test_an_interrupted_format_can_be_repeated(storage: Storage, home: Path) -> None:
    assert format_with(storage, "SCRAM-SHA-512=[name=a,password=1]").exit_code == 0
    for path in (home, Path(f"{home}-2")):
        (path / "meta.properties").unlink()
    repeated = format_with(
        storage, "SCRAM-SHA-512=[name=a,password=2]", "SCRAM-SHA-512=[name=b,password=3]"
    )
    assert repeated.output.splitlines()[0] == "Added user b with SCRAM-SHA-512."
    users = users_at_start(home, f"{home}-2")[2]
    assert matches(users["a"][SHA_512], SHA_512, "1")
    assert matches(users["b"][SHA_512], SHA_512, "3")
    for path in (home, Path(f"{home}-2")):
        (path / "meta.properties").unlink()
    other = storage("format", "-t", "AAAAAAAAQACAAAAAAAAAAg")
    assert f"The metadata belongs to the cluster {CLUSTER_ID}" in other.output


def test_the_directories_of_a_running_broker_are_refused(storage: Storage, home: Path) -> None:
    async def scenario() -> Result:
        async with EmbeddedBroker(home):
            return await asyncio.to_thread(format_with, storage)

    result = asyncio.run(scenario())
    assert result.exit_code == 1
    assert f"The data directory {home} is in use by another broker" in result.output


@pytest.mark.parametrize(("user", "message"), [
    ("SCRAM-SHA-512=[name=admin]", "requires either a password or a saltedpassword"),
    ("SCRAM-SHA-512=[password=hunter2]", "requires a name"),
    ("SCRAM-SHA-512=[name=,password=hunter2]", "requires a name"),
    ("SCRAM-SHA-1=[name=a,password=hunter2]", "SCRAM-SHA-256 or SCRAM-SHA-512, not SCRAM-SHA-1"),
    ("SCRAM-SHA-512=name=a,password=hunter2", "must look like"),
    ("hunter2", "must look like"),
    ("SCRAM-SHA-512=[name=a,password=x,hunter2]", "once each"),
    ("SCRAM-SHA-512=[name=a,password=x,password=hunter2]", "once each"),
    ("SCRAM-SHA-512=[name=a,pass=hunter2]", "once each"),
    ("SCRAM-SHA-512=[name=a,password=hunter2,iterations=1]", "between 4096 and 16384"),
    ("SCRAM-SHA-512=[name=a,password=hunter2,iterations=many]", "between 4096 and 16384"),
    ("SCRAM-SHA-512=[name=a,iterations=99999999999999,password=hunter2]", "between 4096 and"),
    ("SCRAM-SHA-512=[name=a,saltedpassword=hunter2]", "requires the salt"),
    ("SCRAM-SHA-512=[name=a,salt=c2FsdA==,saltedpassword=hunter2!]", "base64"),
    ("SCRAM-SHA-512=[name=a,password=x,salt=c2FsdA==,saltedpassword=hunter2]", "either"),
])  # fmt: skip
def test_a_malformed_user_is_refused_without_showing_the_password(
    storage: Storage, home: Path, user: str, message: str
) -> None:
    result = format_with(storage, user)
    assert result.exit_code == 1
    assert message in result.output
    assert "hunter2" not in result.output
    assert "Traceback" not in result.output
    assert not home.exists()


@pytest.mark.parametrize("cluster_id", ["", "x", "not base64!", "AAAA"])
def test_a_cluster_id_that_is_no_uuid_is_refused(
    storage: Storage, home: Path, cluster_id: str
) -> None:
    result = storage("format", "--cluster-id", cluster_id)
    assert result.exit_code == 1
    assert "kafka-storage random-uuid" in result.output
    assert not home.exists()


def test_standalone_contradicts_zookeeper(run: Storage, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={tmp_path}/data\nzookeeper.connect=127.0.0.1:1\nnode.id=1\n")
    result = run("format", "-c", str(file), "-t", CLUSTER_ID, "--standalone")
    assert result.exit_code == 1
    assert "--standalone cannot be used with zookeeper.connect" in result.output


def test_info_shows_directories_and_problems(storage: Storage, home: Path) -> None:
    result = storage("info")
    assert result.exit_code == 1
    assert f"Found problems:\n  {home} does not exist\n  {home}-2 does not exist" in result.output
    format_with(storage)
    result = storage("info")
    assert result.exit_code == 0
    assert result.output.startswith(f"Found log directories:\n  {home}\n  {home}-2\n\nFound metad")
    assert f"{{cluster.id={CLUSTER_ID}, directory.id=" in result.output
    assert ", node.id=3, version=1}" in result.output
    (Path(f"{home}-2") / "meta.properties").unlink()
    assert f"Found problem:\n  {home}-2 is not formatted." in storage("info").output
    (Path(f"{home}-2") / "meta.properties").write_text(
        f"cluster.id={CLUSTER_ID}\nnode.id=4\nversion=1\n"
    )
    assert "Mismatched node IDs" in storage("info").output


def test_results_are_printed_as_json(storage: Storage, run: Storage, home: Path) -> None:
    added = format_with(storage, "SCRAM-SHA-512=[name=a,password=hunter2]", options=("--json",))
    directories = [str(home), f"{home}-2"]
    assert json.loads(added.output) == {"directories": directories, "users": ["a"]}
    (Path(f"{home}-2") / "meta.properties").unlink()
    found = json.loads(storage("info", "--json").output)
    assert found["directories"][str(home)]["cluster_id"] == CLUSTER_ID
    assert found["directories"][f"{home}-2"] is None
    assert found["problems"] == [f"{home}-2 is not formatted."]
    assert len(parse_uuid(json.loads(run("random-uuid", "--json").output)["uuid"])) == 16


def test_a_file_in_place_of_a_directory_is_a_problem(storage: Storage, home: Path) -> None:
    home.write_text("")
    assert f"{home} is not a directory" in storage("info").output
    result = format_with(storage)
    assert result.exit_code == 1
    assert "cannot be written to" in result.output


def test_random_uuids_differ_and_are_cluster_ids(run: Storage) -> None:
    first, second = (run("random-uuid").output.strip() for _ in range(2))
    assert first != second
    assert len(parse_uuid(first)) == 16


def test_users_are_stored_replaced_and_deleted_while_no_broker_runs(home: Path) -> None:
    config = BrokerConfig({"log.dirs": str(home)})
    old, new = (new_credential(SHA_512, password) for password in ("old", "new"))
    first = {"alice": {SHA_512: old}, "bob": {SHA_512: old}, "carol": {SHA_256: old}}
    assert asyncio.run(store_users(config, first)) == ["alice", "bob", "carol"]
    second = {"alice": {SHA_512: new}, "bob": {SHA_512: new}}
    assert asyncio.run(store_users(config, second, replace=False)) == []
    changes = {"alice": {SHA_512: new}, "carol": {}, "nobody": {}}
    assert asyncio.run(store_users(config, changes)) == ["alice", "carol"]
    expected = {"alice": {SHA_512: new}, "bob": {SHA_512: old}}
    assert users_at_start(home)[2] == expected

    async def while_running() -> None:
        async with EmbeddedBroker(home):
            await store_users(config, first)

    with pytest.raises(UserError, match="in use by another broker"):
        asyncio.run(while_running())
