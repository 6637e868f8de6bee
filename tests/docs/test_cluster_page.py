"""The commands of docs/cluster.md, run on a cluster that its first command starts."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.docs.blocks import ROOT, blocks, commands
from tests.docs.running import find_tool
from tests.integration.cluster.cluster_of_processes import free_ports

from ottla import Admin, NewTopic

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]
START_TIMEOUT_S = 120.0
PLAN = "Proposed partition reassignment configuration"


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    port = free_ports(1)[0]
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "ottla", "cluster", "up", "--brokers", "3"),
            *("--port", str(port), "--data-dir", str(tmp_path / "cluster")),
        ],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        deadline, output_text = time.monotonic() + START_TIMEOUT_S, ""
        while not (found := re.search(r"bootstrap.servers=(\S+)", output_text)):
            assert time.monotonic() < deadline, output_text
            assert process.poll() is None, output_text
            if select.select([process.stdout], [], [], 1)[0]:
                output_text += process.stdout.readline()
        yield found[1]
    finally:
        process.terminate()
        assert process.wait(120) == 0


def test_the_commands_of_the_page_run(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Admin(bootstrap) as admin:
        admin.create_topics(NewTopic("orders", 3, 2))
    topics = {"topics": [{"topic": "orders"}], "version": 1}
    Path("topics.json").write_text(json.dumps(topics))
    ran = 0
    for block in blocks("docs/cluster.md"):
        if block.language != "console":
            continue
        for command, _ in commands(block.text):
            words = command.partition("#")[0].replace("1,2,3,4", "1,2,3").split()
            if words[:3] == ["ottla", "cluster", "up"]:
                continue  # the fixture has started the cluster
            if "--bootstrap-server" not in words and "--data-dir" not in words:
                words += ["--bootstrap-server", bootstrap]
            tool, arguments = find_tool(words)
            result = CliRunner().invoke(tool, arguments, catch_exceptions=False)
            assert result.exit_code == 0, f"{command}\n{result.output}"
            ran += 1
            if "--generate" in words:
                plan = result.output.partition(PLAN)[2].strip().splitlines()[-1]
                Path("plan.json").write_text(plan)
            if "--execute" in words:
                wait_until_moved(bootstrap)
    assert ran >= 8


def wait_until_moved(bootstrap: str) -> None:
    deadline = time.monotonic() + 60
    with Admin(bootstrap) as admin:
        while admin.list_partition_reassignments():
            assert time.monotonic() < deadline
            time.sleep(0.1)
