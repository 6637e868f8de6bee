"""`ottla cluster up --secure`: brokers, ZooKeeper and clients with TLS and authentication."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.integration.cluster.cluster_of_processes import free_ports, wait_for
from tests.integration.cluster.test_commands import children, command, started

from ottla import Admin, Consumer, Producer
from ottla.base.config.properties import load_properties
from ottla.cli.main import ottla
from ottla.client.errors import ClientError

RECORDS = 200


def free_port() -> int:
    return free_ports(1)[0] % 10_000 + 20_000  # below the range of ephemeral ports


def states(data: Path) -> list[str]:
    """Return the states of the brokers as `cluster status` finds them without further options."""
    result = CliRunner().invoke(ottla, ["cluster", "status", "--data-dir", str(data), "--json"])
    assert result.exit_code == 0, result
    return [each["state"] for each in json.loads(result.stdout)["brokers"]]


def arguments(port: int) -> list[str]:
    up = ["cluster", "up", "--secure", "--brokers", "2", "--data-dir", "./data"]
    return [*up, "--port", str(port), "--override", "broker.lease.ms=1000"]


def test_a_secured_cluster_comes_up_mends_itself_and_starts_again_on_other_ports(
    tmp_path: Path,
) -> None:
    port, out, data = free_port(), tmp_path / "out", tmp_path / "data"
    process = started(*arguments(port), out=out)
    profile = data / "secure/client.properties"
    try:
        wait_for(lambda: str(profile) in out.read_text(), "ready cluster")
        lines = out.read_text().splitlines()
        assert lines[-2:] == [
            f"The cluster is ready. bootstrap.servers=127.0.0.1:{port},127.0.0.1:{port + 1}",
            f"Profile of the administrator: {profile}",
        ]
        assert states(data) == ["up", "up"]
        with Producer(profile=str(profile), acks="all") as producer:
            for number in range(RECORDS):
                producer.send("t", b"%d" % number)

        check_that_strangers_are_refused(port, profile)
        check_that_zookeeper_wants_a_certificate(data)
        check_that_secrets_are_private(data, process.pid)

        here = ["--data-dir", str(data)]
        assert command("cluster", "stop", "2", *here) == (0, "Broker 2 has stopped.")
        assert command("cluster", "start", "2", *here) == (0, "Broker 2 is ready.")
        for wanted in ("QuorumPeerMain", "broker-2"):
            (pid,) = (pid for pid, line in children(process.pid).items() if wanted in line)
            os.kill(pid, signal.SIGKILL)
            wait_for(
                lambda wanted=wanted, pid=pid: any(
                    wanted in line and each != pid for each, line in children(process.pid).items()
                ),
                f"new process of {wanted}",
            )
        wait_for(lambda: states(data) == ["up", "up"], "healthy cluster")
        assert command("cluster", "stop", *here) == (0, "The cluster has stopped.")
        assert process.wait(10) == 0

        other = free_port()
        passwords = profile.read_text()
        process = started(*arguments(other), out=out)
        wait_for(lambda: str(profile) in out.read_text(), "ready cluster")
        assert passwords.replace(str(port), str(other)).replace(str(port + 1), str(other + 1)) == (
            profile.read_text()
        )
        assert values(profile) == {b"%d" % number for number in range(RECORDS)}
        assert command("cluster", "stop", *here) == (0, "The cluster has stopped.")
        assert process.wait(10) == 0
    finally:
        process.kill()
    assert "Traceback" not in out.read_text()


def values(profile: Path) -> set[bytes | None]:
    with Consumer(profile=str(profile), auto_offset_reset="earliest") as consumer:
        consumer.assign([("t", 0)])
        found: set[bytes | None] = set()

        def has_all() -> bool:
            found.update(record.value for record in consumer.poll(0.5))
            return len(found) >= RECORDS

        wait_for(has_all, "all records")
        return found


def check_that_strangers_are_refused(port: int, profile: Path) -> None:
    trusting = {
        name: value
        for name, value in load_properties(str(profile)).items()
        if name.startswith("ssl.")
    }
    for wrong in (
        {},
        {**trusting, "security.protocol": "SSL"},
        {
            **trusting,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "admin",
            "sasl.password": "wrong",
        },
    ):
        with (
            pytest.raises(ClientError),
            Admin(f"127.0.0.1:{port}", profile=wrong, default_api_timeout_ms=1_000) as admin,
        ):
            admin.list_topics()


def check_that_zookeeper_wants_a_certificate(data: Path) -> None:
    config = (data / "zookeeper/zoo.cfg").read_text()
    found = re.search(r"secureClientPort=(\d+)", config)
    assert found is not None
    assert not re.search(r"^clientPort=", config, re.MULTILINE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(data / "secure/ca.pem")
    try:
        with (
            socket.create_connection(("127.0.0.1", int(found[1])), 10) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as peer,
        ):
            peer.sendall(b"srvr")
            response = peer.recv(100)
    except (ssl.SSLError, ConnectionError):
        return
    assert response == b"", "ZooKeeper answers a stranger"


def check_that_secrets_are_private(data: Path, pid: int) -> None:
    login = load_properties(str(data / "secure/zookeeper.properties"))
    configuration = load_properties(str(data / "broker-1.properties"))
    jaas = next(text for name, text in configuration.items() if name.endswith("jaas.config"))
    brokers = re.search('password="([^"]+)"', jaas)
    assert brokers is not None
    secrets = [login["zookeeper.auth.password"], brokers[1]]
    for line in children(pid).values():
        assert not any(secret in line for secret in secrets)
    for path in data.rglob("*"):
        if not path.is_file() or not stat.S_IMODE(path.stat().st_mode) & 0o077:
            continue
        content = path.read_bytes()
        assert b"PRIVATE KEY" not in content, path
        assert not any(secret.encode() in content for secret in secrets), path


def test_a_secured_cluster_does_not_start_without_security(tmp_path: Path) -> None:
    (tmp_path / "secure").mkdir()
    arguments = ["cluster", "up", "--data-dir", str(tmp_path)]
    assert command(*arguments) == (
        1,
        f"The cluster in {tmp_path} is secured. Start it with --secure, or use another --data-dir.",
    )
    assert command(*arguments, "--secure", "--zookeeper", "127.0.0.1:1") == (
        1,
        "--secure and --zookeeper cannot be used together. For brokers with another ZooKeeper, "
        "use: ottla secure init --zookeeper",
    )


def test_a_cluster_that_other_machines_can_reach_needs_security(tmp_path: Path) -> None:
    arguments = ["cluster", "up", "--data-dir", str(tmp_path), "--listen", "0.0.0.0"]
    assert command(*arguments) == (
        1,
        "Brokers on 0.0.0.0 are open to other machines, without encryption or authentication. Add "
        "--secure, which makes what `ottla secure init` makes, or add --insecure if that is "
        "intended.",
    )
