"""`ottla cluster` and `ottla zookeeper`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.integration.cli.running import Run, running_on
from tests.integration.client.certificates import needs_openssl
from tests.integration.cluster.cluster_of_processes import free_ports, wait_for
from tests.integration.cluster.zookeeper_access import Stores

from ottla.base.config.properties import format_properties
from ottla.base.errors import UserError
from ottla.cli.local_cluster import LocalCluster
from ottla.cli.main import ottla
from ottla.metadata.zookeeper.ensemble import EnsembleMember
from ottla.metadata.zookeeper.ensemble_security import EnsembleSecurity
from ottla.testing.broker import BrokerProcess

SOURCE = str(Path(__file__).parents[3] / "src")


def started(*arguments: str, out: Path) -> subprocess.Popen[bytes]:
    """Start a command in the directory of `out`."""
    environment = {**os.environ, "PYTHONPATH": SOURCE, "PYTHONUNBUFFERED": "1"}
    with out.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "ottla", *arguments],
            stdout=file,
            stderr=file,
            env=environment,
            cwd=out.parent,
        )


def children(pid: int) -> dict[int, str]:
    """Return the process's children as PID -> command line."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(each): Path(f"/proc/{each}/cmdline").read_text() for each in listed}


def test_a_cluster_comes_up_mends_itself_and_goes_down(
    zookeeper: EnsembleMember, tmp_path: Path
) -> None:
    port = free_ports(1)[0] % 10_000 + 20_000  # below the range of ephemeral ports
    out = tmp_path / "out"
    arguments = ["cluster", "up", "--brokers", "2", "--data-dir", "./data"]
    arguments += ["--port", str(port), "--override", "broker.lease.ms=1000"]
    process = started(*arguments, out=out)
    try:
        wait_for(lambda: re.search("The cluster is ready", out.read_text()), "ready cluster")
        assert f"bootstrap.servers=127.0.0.1:{port},127.0.0.1:{port + 1}" in out.read_text()
        run = running_on(f"127.0.0.1:{port}")
        assert run("topics", "--create", "--topic", "t", "--partitions", "4").code == 0
        status = json.loads(run("cluster status", "--json").out)
        assert [each["state"] for each in status["brokers"]] == ["up", "up"]
        assert [each["leaders"] for each in status["brokers"]] == [2, 2]
        assert status["controller"] in (1, 2)
        assert (status["under_replicated"], status["offline"]) == ([], [])

        for wanted in ("QuorumPeerMain", "node.id=2"):
            (pid,) = (pid for pid, line in children(process.pid).items() if wanted in line)
            os.kill(pid, signal.SIGKILL)
            wait_for(
                lambda wanted=wanted, pid=pid: any(
                    wanted in line and each != pid for each, line in children(process.pid).items()
                ),
                f"new process of {wanted}",
            )
        wait_for(
            lambda: (
                "Under-replicated partitions: 0" in run("cluster status").lines
                and "up" in run("cluster status").lines[3]
            ),
            "healthy cluster",
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
    assert "Traceback" not in out.read_text()


def command(*arguments: str) -> tuple[int, str]:
    """Run a command to its end; return its exit code, and its output or error message."""
    result = CliRunner().invoke(ottla, arguments)
    if isinstance(result.exception, UserError):
        return result.exception.exit_code, str(result.exception)
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result.exit_code, result.output.strip()


def test_a_broker_is_stopped_and_started_by_its_id(
    zookeeper: EnsembleMember, tmp_path: Path
) -> None:
    port = free_ports(1)[0] % 10_000 + 20_000
    out, data = tmp_path / "out", tmp_path / "data"
    here = ["--data-dir", str(data)]
    assert command("cluster", "stop", "2", *here) == (
        1,
        f"No cluster is running in {data}. Start one with: ottla cluster up --data-dir {data}",
    )
    arguments = ["cluster", "up", "--brokers", "2", "--data-dir", "./data", "--port", str(port)]
    arguments += ["--zookeeper", f"{zookeeper.connect}/stopped-by-id"]
    process = started(*arguments, "--override", "broker.lease.ms=1000", out=out)
    try:
        wait_for(lambda: "The cluster is ready" in out.read_text(), "ready cluster")
        assert all("ottla\0broker" in line for line in children(process.pid).values()), "no Java"
        run = running_on(f"127.0.0.1:{port}")
        assert run("topics", "--create", "--topic", "t", "--partitions", "4").code == 0

        assert command("cluster", "stop", "2", *here) == (0, "Broker 2 has stopped.")
        assert len(children(process.pid)) == 1
        assert (data / "broker-2" / ".kafka_cleanshutdown").exists()
        wait_for(lambda: "Broker 2 was stopped on request." in out.read_text(), "a report")
        wait_for(lambda: brokers(run)[1]["state"] == "down", "broker 2 down")
        assert [(each["id"], each["leaders"], each["replicas"]) for each in brokers(run)] == [
            (1, 4, 4),
            (2, 0, 4),
        ]
        assert run("cluster status").lines[3].split()[3:] == ["down", "0", "4"]
        assert command("cluster", "stop", "2", *here) == (1, "Broker 2 is not running.")
        assert command("cluster", "stop", "7", *here) == (
            1,
            "Broker 7 does not exist. The brokers of the cluster: 1, 2.",
        )
        assert command("cluster", "start", "1", *here) == (
            1,
            "Broker 1 is not stopped; it is running.",
        )
        second = started(*arguments, out=tmp_path / "second")
        assert second.wait(30) == 1
        assert "A cluster is already running in" in (tmp_path / "second").read_text()

        assert command("cluster", "start", "2", *here) == (0, "Broker 2 is ready.")
        wait_for(lambda: [each["state"] for each in brokers(run)] == ["up", "up"], "both brokers")
        assert "exited with code" not in out.read_text(), "no broker was taken for a crashed one"
        assert command("cluster", "stop", *here) == (0, "The cluster has stopped.")
        assert process.wait(10) == 0
        assert command("cluster", "stop", *here)[0] == 1
    finally:
        process.kill()
    assert "Traceback" not in out.read_text()


def brokers(run: Run) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run("cluster status", "--json").json["brokers"]
    return found


def test_a_zookeeper_that_does_not_answer_is_named(tmp_path: Path) -> None:
    port, nobody = free_ports(2)
    arguments = ["cluster", "up", "--data-dir", str(tmp_path), "--port", str(port)]
    arguments += ["--brokers", "1", "--zookeeper", f"127.0.0.1:{nobody}/x"]
    process = started(*arguments, out=tmp_path / "out")
    assert process.wait(30) == 1
    said = (tmp_path / "out").read_text()
    assert f"Cannot reach ZooKeeper at 127.0.0.1:{nobody}/x: Connection refused." in said
    assert "Traceback" not in said


def test_ports_that_are_taken_are_named(zookeeper: EnsembleMember, tmp_path: Path) -> None:
    port = int(zookeeper.connect.rpartition(":")[2])
    out = tmp_path / "out"
    process = started("cluster", "up", "--data-dir", str(tmp_path), "--port", str(port), out=out)
    assert process.wait(30) == 1
    assert f"Cannot listen on 127.0.0.1:{port}: " in out.read_text()
    assert "Traceback" not in out.read_text()


def test_zookeeper_runs_in_the_foreground(zookeeper: EnsembleMember, tmp_path: Path) -> None:
    port = free_ports(1)[0]
    out = tmp_path / "out"
    listen = f"127.0.0.1:{port}"
    process = started("zookeeper", "--data-dir", "./zk", "--listen", listen, out=out)
    try:
        wait_for(lambda: f"zookeeper.connect={listen}" in out.read_text(), "ready member")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()


@needs_openssl
def test_a_secure_zookeeper_and_a_broker_of_it(zookeeper: EnsembleMember, tmp_path: Path) -> None:
    stores = Stores.make(tmp_path / "stores")
    place = tmp_path / "secure"
    place.mkdir()
    (place / "ca.pem").write_bytes(stores.trusted.read_bytes())
    (place / "zookeeper.pem").write_bytes(stores.signed("zookeeper").read_bytes())
    login = {"zookeeper.auth.user": "brokers", "zookeeper.auth.password": "p:w d"}
    (place / "zookeeper.properties").write_text(format_properties(login))
    out = tmp_path / "out"
    listen = f"127.0.0.1:{free_ports(1)[0]}"
    arguments = ["--data-dir", "./zk", "--listen", listen, "--secure-dir", "secure"]
    process = started("zookeeper", *arguments, out=out)
    try:
        wait_for(lambda: f"zookeeper.connect={listen}" in out.read_text(), "ready member")
        assert "with TLS" in out.read_text()
        (java,) = children(process.pid).values()
        assert "p:w d" not in java
        security = EnsembleSecurity.from_directory(place)
        properties = {**security.broker_properties(), "zookeeper.connect": listen}
        broker = BrokerProcess(tmp_path / "broker", overrides=properties)
        try:
            broker.start()
            assert "p:w d" not in broker.log()
        finally:
            broker.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()


@needs_openssl
def test_a_local_cluster_with_a_secure_zookeeper(
    zookeeper: EnsembleMember, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", SOURCE)
    security = Stores.make(tmp_path / "stores").security()
    data, port = tmp_path / "data", free_ports(1)[0]
    cluster = LocalCluster(str(data), 1, port, {}, print, zookeeper_security=security)
    try:
        cluster.start()
        file = data / "broker-1.properties"
        assert "zookeeper.set.acl=true" in file.read_text()
        assert file.stat().st_mode & 0o077 == 0
        assert security.credentials is not None
        for command in children(os.getpid()).values():
            assert security.credentials.password not in command
        assert running_on(cluster.bootstrap)("topics", "--create", "--topic", "t").code == 0
    finally:
        cluster.stop()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--member", "a:1"], "--member a:1 must look like HOST:PORT:QUORUM_PORT:ELECTION_PORT."),
        (["--id", "4"], "--id 4 must be 1 to 1, the number of members."),
        (["--listen", "0.0.0.0:1"], "0.0.0.0:1 is open to other machines, without encryption"),
        (["--member", "0.0.0.0:1:2:3"], "use --secure-dir, listen on 127.0.0.1, or add --insecure"),
        (["--secure-dir", "/nowhere"], "Cannot read the configuration file /nowhere/zookeeper"),
        (["--tls-keystore", "a"], "--tls-keystore, --tls-truststore and --auth-file must be used"),
        (["--secure-dir", "a", "--auth-file", "b"], "--secure-dir cannot be used with"),
    ],
)
def test_wrong_members_are_refused_in_a_sentence(
    arguments: list[str], sentence: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = started("zookeeper", "--data-dir", str(tmp_path), *arguments, out=out)
    assert process.wait(30) == 1
    assert sentence in out.read_text()
