"""`ottla cluster` and `ottla zookeeper`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.cli.running import running_on
from tests.integration.cluster.cluster_of_processes import free_ports, wait_for

from ottla.metadata.zookeeper.ensemble import Member

SOURCE = str(Path(__file__).parents[3] / "src")


def started(*arguments: str, out: Path) -> subprocess.Popen[bytes]:
    """Run in the directory of `out`."""
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
    """Their command lines."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(each): Path(f"/proc/{each}/cmdline").read_text() for each in listed}


def test_a_cluster_comes_up_mends_itself_and_goes_down(zookeeper: Member, tmp_path: Path) -> None:
    port = free_ports(1)[0] % 10_000 + 20_000  # below what the system hands out
    out = tmp_path / "out"
    arguments = ["cluster", "up", "--brokers", "2", "--data-dir", "./data"]
    arguments += ["--port", str(port), "--override", "broker.lease.ms=1000"]
    process = started(*arguments, out=out)
    try:
        wait_for(lambda: re.search("The cluster is ready", out.read_text()), "ready cluster")
        assert f"bootstrap.servers=127.0.0.1:{port},127.0.0.1:{port + 1}" in out.read_text()
        run = running_on(f"127.0.0.1:{port}")
        assert run("topics", "--create", "--topic", "t", "--partitions", "4").code == 0
        told = json.loads(run("cluster status", "--json").out)
        assert [each["state"] for each in told["brokers"]] == ["up", "up"]
        assert [each["leaders"] for each in told["brokers"]] == [2, 2]
        assert told["controller"] in (1, 2)
        assert (told["under_replicated"], told["offline"]) == ([], [])

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


def test_ports_that_are_taken_are_named(zookeeper: Member, tmp_path: Path) -> None:
    port = int(zookeeper.connect.rpartition(":")[2])
    out = tmp_path / "out"
    process = started("cluster", "up", "--data-dir", str(tmp_path), "--port", str(port), out=out)
    assert process.wait(30) == 1
    assert f"127.0.0.1:{port} cannot be listened on" in out.read_text()
    assert "Traceback" not in out.read_text()


def test_zookeeper_runs_in_the_foreground(zookeeper: Member, tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--member", "a:1"], "a:1 must look like HOST:PORT:QUORUM_PORT:ELECTION_PORT."),
        (["--id", "4"], "--id 4 is none of the 1 members."),
    ],
)
def test_wrong_members_are_refused_in_a_sentence(
    arguments: list[str], sentence: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = started("zookeeper", "--data-dir", str(tmp_path), *arguments, out=out)
    assert process.wait(30) == 1
    assert sentence in out.read_text()
