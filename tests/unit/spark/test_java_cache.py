"""Tests of the cache of Java's classes: when it is used, when it is made, and by whom."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import UserError
from ottla.base.java import _packaged_java, find_java, java_feature_version
from ottla.spark import java_cache
from ottla.spark.java_cache import JavaCache, key_of

DEADLINE_S = 60.0


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv(java_cache.VARIABLE, "")
    monkeypatch.setenv(java_cache.SUBMIT_OPTIONS, "-Dmine=1")
    made = tmp_path / "ottla" / "java"
    made.mkdir(mode=0o700, parents=True)
    return made


def runtime(at: Path, version: str = "25.0.2") -> Path:
    (at / "lib").mkdir(parents=True)
    (at / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return at


def javas() -> list[Path]:
    return sorted({find_java().resolve(), _packaged_java() or find_java().resolve()})


# ---------------------------------------------------------------------------------------- the use


@pytest.mark.parametrize("java", javas(), ids=lambda java: java.parts[-3])
@pytest.mark.parametrize("content", [None, b"", b"not a cache" * 1000])
def test_java_starts_and_prints_nothing_if_the_cache_is_not_one(
    java: Path, content: bytes | None, tmp_path: Path
) -> None:
    path = tmp_path / "key.cache"
    if content is not None:
        path.write_bytes(content)
    version = java_feature_version(java.parent.parent)
    assert version is not None
    options = JavaCache(java.parent.parent, version, path).options()
    seen = [
        subprocess.run([java, *each, "-Xmx64m", "-cp", str(tmp_path), "None"],
                       capture_output=True, text=True, check=False)
        for each in ((), options)
    ]  # fmt: skip
    assert (seen[0].stdout, seen[0].stderr) == (seen[1].stdout, seen[1].stderr)
    assert "ClassNotFoundException: None" in seen[1].stderr


def test_the_jvm_of_a_session_uses_a_cache_and_nothing_else_does(
    directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(runtime(tmp_path / "java")))
    cache = java_cache.find_cache()
    assert cache is not None
    assert cache.path.parent == directory
    cache.path.touch(0o600)
    with java_cache.options_for_session():
        assert f"-Dmine=1 -XX:AOTCache={cache.path} " in os.environ[java_cache.SUBMIT_OPTIONS]
    assert os.environ[java_cache.SUBMIT_OPTIONS] == "-Dmine=1"


@pytest.mark.parametrize(
    ("name", "value"), [(java_cache.VARIABLE, "off"), ("PYSPARK_GATEWAY_PORT", "1")]
)
def test_it_is_not_used_if_it_is_off_or_the_jvm_is_running_already(
    directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(runtime(tmp_path / "java")))
    cache = java_cache.find_cache()
    assert cache is not None
    cache.path.touch(0o600)
    monkeypatch.setenv(name, value)
    with java_cache.options_for_session():
        assert os.environ[java_cache.SUBMIT_OPTIONS] == "-Dmine=1"


def test_a_file_that_others_can_write_is_not_used(directory: Path) -> None:
    path = directory / "key.cache"
    assert not java_cache.is_usable(path)
    path.touch(0o600)
    assert java_cache.is_usable(path)
    path.chmod(0o620)
    assert not java_cache.is_usable(path)
    path.chmod(0o600)
    directory.chmod(0o777)
    assert not java_cache.is_usable(path)
    directory.chmod(0o700)
    link = directory / "link.cache"
    link.symlink_to(path)
    assert not java_cache.is_usable(link)


def test_another_java_or_another_jar_is_another_key(tmp_path: Path) -> None:
    home, jars = runtime(tmp_path / "java"), tmp_path / "jars"
    jars.mkdir()
    (jars / "spark-4.3.0.jar").write_bytes(b"a")
    keys = {key_of(home, jars)}
    (jars / "spark-4.3.0.jar").write_bytes(b"ab")
    keys.add(key_of(home, jars))
    (home / "release").write_text('JAVA_VERSION="25.0.10"\n')
    keys.add(key_of(home, jars))
    keys.add(key_of(runtime(tmp_path / "other"), jars))
    assert len(keys) == 4
    assert key_of(home, jars) in keys


def test_an_old_java_has_none(
    directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(runtime(tmp_path / "java", "11.0.2")))
    assert java_cache.find_cache() is None


def test_a_directory_whose_name_spark_would_split_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    assert java_cache.cache_directory() is None


# ------------------------------------------------------------------------------------- the making

PROGRAM = """
import sys
from pathlib import Path
from ottla.spark import java_cache
sys.executable = sys.argv[1]
java_cache.make_after_this_program(java_cache.JavaCache(Path("/java"), 25, Path("/c/k.cache")))
print("started", flush=True)
sys.stdin.read()
"""


def test_it_is_made_at_the_lowest_priority_after_the_program_was_killed(tmp_path: Path) -> None:
    seen, maker = tmp_path / "seen", tmp_path / "maker"
    maker.write_text(f'#!/bin/sh\necho "$JAVA_HOME" "$SPARK_MASTER" $(nice) "$@" > {seen}.new\n'
                     f'mv {seen}.new {seen}\n')  # fmt: skip
    maker.chmod(0o755)
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(maker)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "SPARK_MASTER": "local[7]"},
    )
    assert program.stdout is not None
    assert program.stdout.readline() == b"started\n"
    assert not seen.exists()
    program.send_signal(signal.SIGKILL)
    program.communicate()
    deadline = time.monotonic() + DEADLINE_S
    while not seen.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert seen.read_text().split() == ["/java", "19", "-m", "ottla.spark.java_cache"]


class Steps:
    """Replacement of the processes that record classes and write the cache."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.commands: list[list[str]] = []

    def __call__(self, command: Sequence[str], environment: Any, timeout_s: float) -> None:
        self.commands.append(list(command))
        if self.fails:
            raise UserError("Java has no memory.")
        if "ottla.spark.java_cache_training" in command:
            (recording,) = (
                each for each in environment[java_cache.SUBMIT_OPTIONS].split() if "AOTConf" in each
            )
            Path(recording.partition("=")[2]).touch()
            Path(command[-1]).write_text("a.jar:b.jar\n--add-opens=x\n-Xmx1g")
        else:
            (named,) = (each for each in command if each.startswith("-XX:AOTCache="))
            Path(named.partition("=")[2]).write_bytes(b"made")


def test_it_is_recorded_and_written_and_then_gets_its_name(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps()
    monkeypatch.setattr(java_cache, "_run", steps)
    cache = JavaCache(Path("/java"), 25, directory / "key.cache")
    cache.failed.write_text("before")
    (directory / "new-interrupted").mkdir()
    assert java_cache.make(cache)
    assert cache.path.read_bytes() == b"made"
    assert java_cache.is_usable(cache.path)
    assert steps.commands[1][:2] == ["/java/bin/java", "--add-opens=x"]
    assert steps.commands[1][-3:] == ["-cp", "a.jar:b.jar", "-version"]
    assert sorted(each.name for each in directory.iterdir()) == ["key.cache", "lock"]
    assert java_cache.make(cache)
    assert len(steps.commands) == 2, "an existing one is kept"


def test_one_that_cannot_be_made_is_not_tried_again_by_sessions(
    directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(java_cache, "_run", Steps(fails=True))
    monkeypatch.setenv("JAVA_HOME", str(runtime(tmp_path / "java")))
    started: list[JavaCache] = []
    monkeypatch.setattr(java_cache, "make_after_this_program", started.append)
    cache = java_cache.find_cache()
    assert cache is not None
    with java_cache.options_for_session():
        assert started == [cache]
    with pytest.raises(UserError, match="no memory"):
        java_cache.make(cache)
    assert cache.failed.read_text() == "Java has no memory.\n"
    with java_cache.options_for_session():
        assert started == [cache]


def test_one_process_makes_it_at_a_time(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps()
    monkeypatch.setattr(java_cache, "_run", steps)
    with (directory / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert not java_cache.make(JavaCache(Path("/java"), 25, directory / "key.cache"))
    assert steps.commands == []


def test_those_used_last_are_kept(directory: Path) -> None:
    for age, name in enumerate(("newest", "newer", "old", "oldest")):
        (directory / f"{name}.cache").touch()
        os.utime(directory / f"{name}.cache", (1000 - age, 1000 - age))
    java_cache.remove_old(directory)
    assert sorted(each.stem for each in directory.iterdir()) == ["newer", "newest"]
