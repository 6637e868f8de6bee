"""The systemd unit: systemd accepts it, and everything that it names exists."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.deploy.files import DEPLOY, PROJECT, needs_check

from ottla.base.config.broker_table import BROKER
from ottla.base.config.properties import load_properties

UNIT = DEPLOY / "systemd" / "ottla.service"
STOP_S = 10
"""Seconds that a broker needs to stop after it has handed over its leaderships."""
MAX_EXPOSURE = 2.0
"""Maximum exposure on systemd's scale: 0 is fully sandboxed, 10 is without any restriction."""


def service() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


def run(*command: str | Path) -> str:
    if shutil.which(str(command[0])) is None:
        pytest.skip(f"{command[0]} is not installed")
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """Write the unit with paths to existing programs, because systemd checks that they exist."""
    for name in PROJECT["scripts"]:
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!{sys.executable}\n")
        program.chmod(0o755)
    file = tmp_path / UNIT.name
    file.write_text(UNIT.read_text().replace("/opt/ottla/bin", str(tmp_path / "bin")))
    return file


def test_systemd_finds_nothing_wrong_with_the_unit(unit: Path) -> None:
    assert run("systemd-analyze", "verify", unit) == ""


def test_the_unit_is_hardened(unit: Path) -> None:
    directives = run("systemd-analyze", "security", "--offline=true", unit)
    level = re.search(r"Overall exposure level for \S+ ([\d.]+)", directives)
    assert level, directives
    assert float(level[1]) <= MAX_EXPOSURE


def test_the_unit_runs_programs_of_ottla_with_the_configuration_that_it_checked() -> None:
    directives = service()
    (check,), (start,) = (
        list(map(shlex.split, directives[each])) for each in ("ExecStartPre", "ExecStart")
    )
    assert Path(start[0]).name in PROJECT["scripts"]
    assert check[0] == start[0]
    assert check[1:] == ["--check", *start[1:]]
    assert start[1:] == ["/etc/ottla/server.properties"]


@needs_check
def test_a_wrong_configuration_is_found_before_the_start(tmp_path: Path) -> None:
    (check,) = map(shlex.split, service()["ExecStartPre"])
    module, _, function = PROJECT["scripts"][Path(check[0]).name].partition(":")
    text = (DEPLOY / "server.properties").read_text()
    text = text.replace("/var/lib/ottla", str(tmp_path / "data")).replace(":9092", ":0")
    for more, code in (("", 0), ("num.partitions=none\n", 1)):
        file = tmp_path / "server.properties"
        file.write_text(text + more)
        program = [sys.executable, "-c", f"from {module} import {function}; {function}()"]
        arguments = [str(file) if each.startswith("/etc") else each for each in check[1:]]
        ended = subprocess.run([*program, *arguments], capture_output=True, text=True, check=False)
        assert ended.returncode == code, ended.stdout + ended.stderr


def test_the_unit_may_write_where_the_example_keeps_its_data() -> None:
    directory = Path("/var/lib") / service()["StateDirectory"][0]
    given = load_properties(str(DEPLOY / "server.properties"))
    assert Path(given["log.dirs"]).is_relative_to(directory)


def test_the_unit_waits_longer_for_a_stop_than_a_broker_takes() -> None:
    known = BROKER.get("controlled.shutdown.timeout.ms")
    hand_over_s = 30 if known is None else known.default / 1000
    (wait,) = service()["TimeoutStopSec"]
    assert int(wait.removesuffix("s")) >= 2 * (hand_over_s + STOP_S)


def test_the_user_and_the_directories_of_the_unit_are_created(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give directories to another user")
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    run("systemd-sysusers", f"--root={root}", DEPLOY / "systemd" / "sysusers.conf")
    user = (root / "etc" / "passwd").read_text().split(":")
    directives = service()
    assert user[0] == directives["User"][0] == directives["Group"][0]
    assert user[5] == "/var/lib/ottla"
    run("systemd-tmpfiles", f"--root={root}", "--create", DEPLOY / "systemd" / "tmpfiles.conf")
    data = root / "var" / "lib" / "ottla"
    assert data.stat().st_mode & 0o777 == int(directives["StateDirectoryMode"][0], 8)
    assert (root / "etc" / "ottla").is_dir()


def test_rotation_truncates_the_file_that_a_daemon_appends_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ottla.cli.paths import daemon_output_file

    text = (DEPLOY / "logrotate" / "ottla").read_text()
    (pattern,) = re.findall(r"^(/\S+) \{$", text, re.MULTILINE)
    monkeypatch.setenv("LOG_DIR", str(Path(pattern).parent))
    assert Path(daemon_output_file()).match(pattern)
    assert re.search(r"^\s+copytruncate$", text, re.MULTILINE)
    if shutil.which("logrotate") is not None:
        # Remove `su`: the user of the unit does not exist on this machine.
        file = tmp_path / "ottla"
        file.write_text(re.sub(r"^ +su .*\n", "", text, flags=re.MULTILINE))
        run("logrotate", "--debug", "--state", tmp_path / "state", file)
