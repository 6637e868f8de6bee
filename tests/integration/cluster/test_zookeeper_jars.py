"""A ZooKeeper member runs from the jars of a ZooKeeper distribution, without PySpark."""

from __future__ import annotations

import importlib.util
import shutil
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from tests.integration.cluster.cluster_of_processes import start_zookeeper

from ottla.metadata.zookeeper import jars
from ottla.metadata.zookeeper.ensemble import EnsembleMember

find_spec = importlib.util.find_spec


def no_pyspark(name: str, package: str | None = None) -> ModuleSpec | None:
    return None if name == "pyspark" else find_spec(name, package)


@pytest.mark.parametrize(
    ("variable", "folder", "versioned"),
    [("ZOOKEEPER_HOME", "lib", True), ("KAFKA_HOME", "libs", True), (None, "java", False)],
)
def test_a_member_runs_from_the_jars_of_an_installation(
    zookeeper: EnsembleMember,
    variable: str | None,
    folder: str,
    versioned: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / folder).mkdir()
    for jar in jars.find_jars():
        name, _, _ = jar.stem.rpartition("-")
        shutil.copy(jar, tmp_path / folder / (jar.name if versioned else f"{name}.jar"))
    for each in ("ZOOKEEPER_HOME", "KAFKA_HOME"):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setattr(jars, "DEBIAN_FOLDER", tmp_path / "java")
    monkeypatch.setattr(importlib.util, "find_spec", no_pyspark)
    if variable is not None:
        monkeypatch.setenv(variable, str(tmp_path))
    assert {jar.parent for jar in jars.find_jars()} == {tmp_path / folder}
    member = start_zookeeper(tmp_path / "member")
    try:
        assert "Mode: standalone" in member.four_letter_command("srvr")
    finally:
        member.kill()
