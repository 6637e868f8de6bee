"""The cached JAR: which files are used, and which are written again."""

from __future__ import annotations

import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.spark.realtime import jvm_part


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Versions that were compiled, into an empty cache directory."""
    done: list[str] = []

    def compile_for(spark: Any) -> dict[str, bytes]:
        done.append(spark.version)
        return {"ottla/DefaultSource.class": b"code"}

    monkeypatch.setattr(jvm_part, "_compiled", compile_for)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return done


def jar_for(version: str) -> Path:
    spark: Any = SimpleNamespace(version=version)
    return jvm_part._cached_jar(spark)


def test_jar_is_compiled_once_for_each_version_of_spark(compiled: list[str]) -> None:
    first = jar_for("4.3.0")
    assert jar_for("4.3.0") == first
    assert jar_for("4.3.1") != first
    assert compiled == ["4.3.0", "4.3.1"]
    assert first.stat().st_mode & 0o077 == 0
    assert first.parent.stat().st_mode & 0o077 == 0


def test_damaged_jar_is_compiled_again(compiled: list[str]) -> None:
    jar = jar_for("4.3.0")
    jar.write_bytes(jar.read_bytes()[:40])
    assert zipfile.is_zipfile(jar_for("4.3.0"))
    assert len(compiled) == 2


@pytest.mark.parametrize("what", ["jar", "directory"])
def test_files_that_others_can_write_are_not_used(compiled: list[str], what: str) -> None:
    jar = jar_for("4.3.0")
    (jar if what == "jar" else jar.parent).chmod(0o777)
    again = jar_for("4.3.0")
    assert len(compiled) == 2
    assert (again == jar) == (what == "jar")
    assert again.stat().st_mode & 0o022 == 0
