"""Brokers and strangers at a ZooKeeper that requires certificates and a password."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.integration.client.certificates import needs_openssl
from tests.integration.cluster.cluster_of_processes import (
    ClusterOfProcesses,
    free_ports,
    wait_for,
)
from tests.integration.cluster.load import Load
from tests.integration.cluster.zookeeper_access import (
    PASSWORD,
    Stores,
    opened,
    readable,
    refusal,
    write,
)

from ottla.base.config.properties import format_properties
from ottla.base.errors import UserError
from ottla.cli.main import ottla
from ottla.metadata.zookeeper.ensemble import EnsembleMember, local_addresses
from ottla.metadata.zookeeper.ensemble_security import EnsembleSecurity
from ottla.testing.broker import BrokerProcess

pytestmark = needs_openssl

AT_ONCE_S = 15.0
"""Bound for refusals that need no time limit, on a busy machine."""


def started(
    directory: Path, security: EnsembleSecurity | None, count: int = 1
) -> list[EnsembleMember]:
    addresses = local_addresses(count, free_ports(3 * count))
    members = [
        EnsembleMember(directory / str(number), number, addresses, security)
        for number in range(1, count + 1)
    ]
    try:
        for member in members:
            member.start()
        for member in members:
            member.wait_until_serving()
    except UserError as error:
        for member in members:
            member.kill()
        if "was not found" in str(error):
            pytest.skip(str(error))
        raise
    return members


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores.make(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def security(stores: Stores) -> EnsembleSecurity:
    return stores.security()


@pytest.fixture(scope="module")
def secured(
    security: EnsembleSecurity, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EnsembleMember]:
    (member,) = started(tmp_path_factory.mktemp("secured"), security)
    yield member
    member.kill()


@pytest.fixture(scope="module")
def broker(stores: Stores, security: EnsembleSecurity) -> dict[str, str]:
    """The properties of a broker that is let in."""
    return security.broker_properties(stores.signed("broker"))


@contextmanager
def connected(host: str, port: int, security: EnsembleSecurity) -> Iterator[ssl.SSLSocket]:
    with (
        socket.create_connection((host, port), AT_ONCE_S) as peer,
        security.client_context().wrap_socket(peer) as secure,
    ):
        yield secure


def without(properties: dict[str, str], *parts: str) -> dict[str, str]:
    return {
        name: value for name, value in properties.items() if not any(part in name for part in parts)
    }


def test_a_broker_with_certificate_and_password_is_let_in(
    secured: EnsembleMember, broker: dict[str, str]
) -> None:
    async def use() -> None:
        store = await opened(f"{secured.connect}/in", broker)
        await write(store, "/topics/t")
        await store.close()

    asyncio.run(use())


def test_names_in_the_certificate_are_checked(
    secured: EnsembleMember, broker: dict[str, str]
) -> None:
    by_name = secured.connect.replace("127.0.0.1", "localhost")
    assert "certificate is not valid for 'localhost'" in refusal(by_name, broker)

    async def use() -> None:
        unchecked = {**broker, "zookeeper.ssl.endpoint.identification.algorithm": ""}
        await (await opened(by_name, unchecked)).close()

    asyncio.run(use())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("other authority", "is not trusted: unable to get local issuer certificate"),
        ("no certificate", "rejected the TLS connection"),
        ("foreign certificate", "rejected the TLS connection"),
        ("wrong password", "does not accept the user 'brokers'"),
        ("wrong user", "does not accept the user 'nobody'"),
        ("no password", "requires authentication. Set zookeeper.auth.user"),
        ("digest", "does not accept the user 'brokers'"),
    ],
)
def test_everybody_else_is_refused_at_once_in_a_sentence(
    change: str,
    sentence: str,
    secured: EnsembleMember,
    broker: dict[str, str],
    tmp_path: Path,
) -> None:
    other = Stores.make(tmp_path / "other")
    changed = {
        "other authority": {**broker, "zookeeper.ssl.truststore.location": str(other.trusted)},
        "no certificate": without(broker, "keystore"),
        "foreign certificate": {
            **broker,
            "zookeeper.ssl.keystore.location": str(other.signed("broker")),
        },
        "wrong password": {**broker, "zookeeper.auth.password": "wrong"},
        "wrong user": {**broker, "zookeeper.auth.user": "nobody"},
        "no password": without(broker, "auth"),
        "digest": {**broker, "zookeeper.auth.scheme": "digest"},
    }[change]
    began = time.monotonic()
    found = refusal(f"{secured.connect}/in", changed)
    assert sentence in found
    assert PASSWORD not in found
    assert time.monotonic() - began < AT_ONCE_S


def test_a_broker_with_a_wrong_password_ends_with_one_sentence(
    secured: EnsembleMember, broker: dict[str, str], tmp_path: Path
) -> None:
    wrong = {"zookeeper.connect": secured.connect, "zookeeper.auth.password": "guessed"}
    process = BrokerProcess(tmp_path, overrides={**broker, **wrong})
    try:
        process.start(wait=False)
        assert process.wait(60) == 1
        log = process.log()
        sentence = (
            f"ZooKeeper at {secured.connect} does not accept the user 'brokers': authentication "
            "failed. Check zookeeper.auth.user and zookeeper.auth.password."
        )
        assert log.strip().splitlines()[-1].endswith(sentence)
        assert "Traceback" not in log
        assert "guessed" not in log
    finally:
        process.close()


def test_plain_text_at_the_port_for_tls_ends_with_a_hint(
    secured: EnsembleMember, broker: dict[str, str]
) -> None:
    plain = without(broker, "ssl")
    assert "expects TLS (zookeeper.ssl.client.enable)" in refusal(secured.connect, plain, 1_500)


def test_tls_at_the_port_for_plain_text_ends_with_a_hint(
    zookeeper: EnsembleMember, broker: dict[str, str]
) -> None:
    found = refusal(zookeeper.connect, broker, 1_500)
    assert "port for TLS (secureClientPort)" in found


def test_the_password_is_in_no_public_place(secured: EnsembleMember) -> None:
    command = Path(f"/proc/{secured.pid}/cmdline").read_text()
    assert PASSWORD not in command
    assert "jaas.conf" in command
    for file in secured.directory.rglob("*"):
        if file.is_file() and "simple" in file.read_text("utf-8", "replace"):
            assert file.name == "jaas.conf"
            assert not file.stat().st_mode & 0o077
    assert not secured.directory.stat().st_mode & 0o077


def test_a_changed_certificate_of_the_server_is_used_without_restart(
    secured: EnsembleMember, stores: Stores, security: EnsembleSecurity
) -> None:
    host, port = secured.address.host, secured.address.client_port

    def presented() -> bytes | None:
        with connected(host, port, security) as peer:
            return peer.getpeercert(binary_form=True)

    before = presented()
    stores.signed("zookeeper")
    wait_for(lambda: presented() != before, "the new certificate")


def test_kafka_storage_adds_the_first_users(
    secured: EnsembleMember, broker: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "server.properties"
    place = {"zookeeper.connect": f"{secured.connect}/users", "log.dirs": str(tmp_path / "data")}
    file.write_text(format_properties({**broker, **place, "node.id": "1"}))
    user = "SCRAM-SHA-256=[name=admin,password=first-secret]"
    arguments = ["-c", str(file), "-t", "Moq1eLhXg8miO_2zq0vZwA", "--add-scram", user]
    result = CliRunner().invoke(ottla, ["storage", "format", *arguments])
    assert result.exit_code == 0, result.output
    assert "Added user admin with SCRAM-SHA-256." in result.output

    async def look() -> None:
        store = await opened(place["zookeeper.connect"], broker)
        assert any("admin" in path for path in (await store.load("/access/"))[0])
        await store.close()

    asyncio.run(look())


def test_brokers_work_and_fail_over(
    secured: EnsembleMember, broker: dict[str, str], tmp_path: Path
) -> None:
    properties = {name.replace(".", "_"): value for name, value in broker.items()}
    cluster = ClusterOfProcesses(tmp_path, f"{secured.connect}/brokers", **properties)
    try:
        cluster.start()
        cluster.create_topic("t")
        with Load(cluster.bootstrap, "t", partitions=1) as load:
            load.next_acknowledgement(0, time.monotonic())
            cluster.brokers[cluster.leader("t")].kill()
            killed = time.monotonic()
            load.next_acknowledgement(0, killed)
        load.assert_all_there(cluster.read_all("t"))
        logs = "".join(each.log() for each in cluster.brokers.values())
        assert PASSWORD not in logs
        assert "Traceback" not in logs
        assert "everyone can access" not in logs
    finally:
        cluster.close()


def test_three_servers_use_tls_among_themselves(
    stores: Stores, security: EnsembleSecurity, broker: dict[str, str], tmp_path: Path
) -> None:
    members = started(tmp_path, security, 3)
    try:
        connect = ",".join(each.connect for each in members)
        leaders = [each for each in members if "Mode: leader" in each.four_letter_command("srvr")]

        async def use() -> None:
            store = await opened(f"{connect}/three", broker)
            await write(store, "/topics/a")
            leaders[0].kill()
            await write(store, "/topics/b")
            await store.close()

        for port in (leaders[0].address.quorum_port, leaders[0].address.election_port):
            with connected("127.0.0.1", port, security) as peer:
                assert peer.version() in ("TLSv1.2", "TLSv1.3")
        asyncio.run(use())
    finally:
        for member in members:
            member.kill()


def test_certificates_alone_protect_nodes_and_may_be_renewed(
    stores: Stores, tmp_path: Path
) -> None:
    """An ensemble with certificates only, whose authority is replaced while a broker runs."""
    first = Stores.make(tmp_path / "first")
    security = first.security(with_password=False)
    own, other = first.signed("brokers"), first.signed("somebody")
    properties = security.broker_properties(own)
    (member,) = started(tmp_path / "member", security)
    connect = f"{member.connect}/x509"
    try:

        async def use() -> None:
            store = await opened(connect, properties)
            await write(store, "/topics/t")
            member.kill()
            renewed = Stores.make(tmp_path / "second")
            own.write_bytes(renewed.signed("brokers").read_bytes())
            security.keystore.write_bytes(renewed.signed("zookeeper").read_bytes())
            security.truststore.write_bytes(renewed.trusted.read_bytes())
            other.write_bytes(renewed.signed("somebody").read_bytes())
            member.start()
            await asyncio.to_thread(member.wait_until_serving)
            async with asyncio.timeout(30):
                await write(store, "/topics/u")
            await store.close()

        asyncio.run(use())
        stranger = security.broker_properties(other)
        found, count = readable(member.connect, properties, stranger, "/x509")
        assert not found
        assert count > 10
        assert "belong to another user" in refusal(connect, stranger)
    finally:
        member.kill()
