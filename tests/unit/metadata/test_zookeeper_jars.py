"""Tests of locating ZooKeeper's jars: in installations first, in PySpark last."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from ottla.base.errors import UserError
from ottla.metadata.zookeeper import jars


@pytest.fixture(autouse=True)
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ZOOKEEPER_HOME", "KAFKA_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(jars, "DEBIAN_FOLDER", tmp_path / "debian")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def folder_with(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True)
    for name in names:
        (folder / f"{name}.jar").touch()
    return folder


def found() -> list[str]:
    return [jar.name.removesuffix(".jar") for jar in jars.find_jars()]


def test_a_distribution_with_logback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["zookeeper-3.9.3", "zookeeper-jute-3.9.3", "slf4j-api-1.7.30", "snappy-java-1.1.10.5"]
    names += ["logback-classic-1.2.13", "logback-core-1.2.13"]
    folder_with(
        tmp_path / "lib", *names, "jetty-server-9.4.56", "zookeeper-prometheus-metrics-3.9.3"
    )
    monkeypatch.setenv("ZOOKEEPER_HOME", str(tmp_path))
    assert found() == names


def test_apache_kafka_before_4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["zookeeper-3.8.4", "zookeeper-jute-3.8.4", "slf4j-reload4j-1.7.36", "reload4j-1.2.25"]
    folder_with(tmp_path / "libs", *names, "kafka_2.13-3.9.0")
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path))
    assert found() == names


def test_debians_package(tmp_path: Path) -> None:
    names = ["zookeeper", "zookeeper-jute", "slf4j-log4j12", "log4j-1.2"]
    folder_with(tmp_path / "debian", *names, "zookeeper-contrib-loggraph")
    assert found() == names


def test_one_installation_is_preferred_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_with(tmp_path / "debian", "zookeeper-3.8.0", "zookeeper-jute-3.8.0")
    assert found()[0] == "zookeeper-3.8.0"
    folder_with(tmp_path / "libs", "zookeeper-3.8.4", "zookeeper-jute-3.8.4")
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path))
    assert found()[0] == "zookeeper-3.8.4"
    folder_with(tmp_path / "lib", "zookeeper-3.10.0", "zookeeper-jute-3.10.0")
    monkeypatch.setenv("ZOOKEEPER_HOME", str(tmp_path))
    assert found()[0] == "zookeeper-3.10.0"


@pytest.mark.parametrize(
    "names",
    [[], ["kafka_2.13-4.1.0"], ["zookeeper-3.4.13"], ["zookeeper-3.5.9", "zookeeper-jute-3.5.9"]],
)
def test_installations_without_a_suitable_zookeeper_are_passed_over(
    names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_with(tmp_path / "libs", *names)
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path))
    with pytest.raises(UserError, match="ZooKeeper was not found"):
        found()
    folder_with(tmp_path / "debian", "zookeeper", "zookeeper-jute")
    assert found() == ["zookeeper", "zookeeper-jute"]
