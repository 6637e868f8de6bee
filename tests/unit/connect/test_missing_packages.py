"""Tests of a worker without optional packages: it lists runnable plugins, and what others need."""

from __future__ import annotations

import json
import logging
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ottla.base.installation import install_extra
from ottla.cli.connect_plugins import connect_plugins
from ottla.cli.connect_worker import _log_missing_plugins
from ottla.connect import plugins
from ottla.connect.plugins import EXTRAS, PACKAGES, MissingPackage, connector_class
from ottla.connect.rest.exchange import Request
from ottla.connect.rest.router import handle
from ottla.connect.standalone import StandaloneHerder
from ottla.connect.worker_config import WorkerConfig

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
BLOCKED = ("psycopg", "sqlalchemy", "pyspark", "fastavro")
SPARK = {"SparkSource", "SparkSink", "SparkFunctionSource", "SparkFunctionSink"}
DATABASES = {"PostgresSource", "JdbcSource", "JdbcSink"}


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate an installation without extras, where importing their packages fails."""
    for name in list(sys.modules):
        is_blocked = name.split(".")[0] in BLOCKED
        if is_blocked or name.startswith("ottla.connect.connectors"):
            monkeypatch.delitem(sys.modules, name)
    for name in BLOCKED:
        monkeypatch.setitem(sys.modules, name, None)


class Rest:
    """Caller of a worker's REST paths, without a server or a broker."""

    def __init__(self, folder: Path) -> None:
        config = WorkerConfig.of({
            "bootstrap.servers": "127.0.0.1:1",
            "key.converter": "StringConverter",
            "value.converter": "StringConverter",
            "offset.storage.file.filename": str(folder / "offsets"),
        })  # fmt: skip
        self._herder = StandaloneHerder(config)
        self._herder.is_ready = True

    def ask(self, method: str, path: str, body: Any = None, **query: str) -> tuple[int, Any]:
        given = {name: [value] for name, value in query.items()}
        data = b"" if body is None else json.dumps(body).encode()
        found = handle(Request(self._herder, given, data), method, path)
        return found.status, found.body


@pytest.fixture
def rest(tmp_path: Path, bare: None) -> Rest:
    return Rest(tmp_path)


def test_the_list_of_plugins_has_what_can_run_in_kafkas_form(rest: Rest) -> None:
    status, listed = rest.ask("GET", "/connector-plugins")
    assert status == 200
    names = {each["class"] for each in listed}
    assert {"FileStreamSource", "FileStreamSink", "HttpSink"} <= names
    assert not names & (SPARK | DATABASES)
    assert all({"class", "type", "version"} <= set(each) for each in listed)
    assert not any("missing" in each for each in listed)


def test_those_that_cannot_run_are_listed_on_request_with_what_is_missing(rest: Rest) -> None:
    _, listed = rest.ask("GET", "/connector-plugins", includeMissing="true")
    missing = {each["class"]: each["missing"] for each in listed if "missing" in each}
    assert missing.keys() == SPARK | DATABASES
    assert missing["PostgresSource"] == f"the package psycopg: {install_extra('postgres')}"
    assert missing["SparkSource"] == f"the package pyspark: {install_extra('spark')}"


def test_converters_without_their_package_are_not_listed_either(rest: Rest) -> None:
    _, every = rest.ask("GET", "/connector-plugins", connectorsOnly="false")
    names = {each["class"] for each in every}
    assert "JsonConverter" in names
    assert "AvroConverter" not in names
    _, every = rest.ask("GET", "/connector-plugins", connectorsOnly="false", includeMissing="true")
    (avro,) = (each for each in every if each["class"] == "AvroConverter")
    assert avro["missing"] == f"the package fastavro: {install_extra('avro')}"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("SparkSource", f"needs the package pyspark: {install_extra('spark')}"),
        ("SparkSink", f"needs the package pyspark: {install_extra('spark')}"),
        ("PostgresSource", f"needs the package psycopg: {install_extra('postgres')}"),
        ("io.debezium.connector.postgresql.PostgresConnector", install_extra("postgres")),
        ("io.confluent.connect.jdbc.JdbcSinkConnector", f"sqlalchemy: {install_extra('jdbc')}"),
    ],
)
def test_a_connector_that_cannot_run_is_refused_with_what_to_install(
    rest: Rest, name: str, message: str
) -> None:
    config = {"connector.class": name, "topics": "a", "format": "json", "path": "out"}
    status, reported = rest.ask("POST", "/connectors", {"name": "x", "config": config})
    assert status == 400
    assert f"The connector {name} needs the package" in reported["message"]
    assert reported["message"].endswith(message)
    status, reported = rest.ask("PUT", f"/connector-plugins/{name}/config/validate", config)
    assert status == 200
    errors = [error for each in reported["configs"] for error in each["value"]["errors"]]
    assert any(error.endswith(message) for error in errors)


def test_a_package_that_does_not_load_is_not_taken_for_an_unknown_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_connector.py").write_text("raise ImportError('no libpq found\\nat all')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(plugins.UnknownPlugin, match=r"cannot be imported: no libpq found\.$"):
        connector_class("broken_connector.Source")
    (tmp_path / "lacking_connector.py").write_text("import package_that_nobody_has")
    with pytest.raises(MissingPackage, match="needs the package package_that_nobody_has, which"):
        connector_class("lacking_connector.Source")


def test_the_tool_lists_both(bare: None) -> None:
    printed = CliRunner().invoke(connect_plugins, [], catch_exceptions=False).output
    can, cannot = printed.split("NOT AVAILABLE")
    assert "FileStreamSource" in can
    assert "PostgresSource" not in can
    assert f"the package psycopg: {install_extra('postgres')}" in cannot
    reported = json.loads(CliRunner().invoke(connect_plugins, ["--json"]).output)
    assert {each["name"] for each in reported["missing"]} == SPARK | DATABASES


def test_a_worker_logs_what_it_cannot_run_when_it_starts(
    bare: None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        _log_missing_plugins()
    assert (
        f"not available: PostgresSource; install the package psycopg: {install_extra('postgres')}"
    ) in caplog.text


def test_extras_bring_the_packages_that_plugins_name() -> None:
    extras = PROJECT["optional-dependencies"]
    for extra, packages in PACKAGES.items():
        for package in packages:
            assert any(each.startswith(package) for each in extras[extra]), (extra, package)
    known = plugins.CONNECTORS | plugins.CONVERTERS
    assert EXTRAS.keys() <= known.keys()
    assert set(EXTRAS.values()) <= PACKAGES.keys()
