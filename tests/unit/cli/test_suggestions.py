"""Tests that every tool suggests a correction for mistyped options, commands and values."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest
from click.testing import CliRunner

from ottla.cli.main import ottla
from ottla.cli.suggestions import edit_distance, nearest, suggestion


@pytest.mark.parametrize(
    ("first", "second", "distance"),
    [
        ("", "", 0),
        ("", "abc", 3),
        ("topic", "topic", 0),
        ("topci", "topic", 1),
        ("partition", "partitions", 1),
        ("servr", "server", 1),
        ("kitten", "sitting", 3),
    ],
)
def test_edit_distance(first: str, second: str, distance: int) -> None:
    assert edit_distance(first, second) == distance
    assert edit_distance(second, first) == distance


def test_the_nearest_names_are_suggested() -> None:
    options = ["--bootstrap-server", "--topic", "--topic-id", "-b"]
    assert nearest("--bootstrap-servr", options) == ["--bootstrap-server"]
    assert nearest("--topcs", options) == ["--topic"]
    assert nearest("--boot", options) == ["--bootstrap-server"]
    assert nearest("--listen", options) == []
    assert nearest("-x", options) == []
    assert suggestion("--lost", ["--list", "--last"]) == " Did you mean --last or --list?"
    assert suggestion("x", []) == ""


@pytest.mark.parametrize(
    ("line", "suggested"),
    [
        ("topics --list --bootstrap-servr x:1", "--bootstrap-server"),
        ("topics --create --topic a --partition 3", "--partitions"),
        ("topics --create --topic a --partition=3", "--partitions"),
        ("topics -topic a", "--topic"),
        ("broker --data-dri x", "--data-dir"),
        ("broker --log-level WARN", "WARNING"),
        ("console-consumer --topic a --isolation-level read_commited", "read_committed"),
        ("transactions lst", "list"),
        ("transactions list --duration-filtr 3", "--duration-filter"),
        ("consoleconsumer", "console-consumer"),
        ("--hlep", "--help"),
        ("version --versoin", "--version"),
    ],
)
def test_a_mistyped_word_is_corrected(line: str, suggested: str) -> None:
    result = CliRunner().invoke(ottla, line.split())
    assert result.exit_code in (1, 2)
    assert result.stderr.endswith(f" Did you mean {suggested}?\n")


@pytest.mark.parametrize(
    ("module", "words", "suggested"),
    [
        ("kafka_server_start", ["--overide", "a=b", "server.properties"], "--override"),
        ("kafka_server_stop", ["--nodeid", "1"], "--node-id"),
        ("kafka_server_stop", ["--process-role=brokr"], "broker"),
        ("kafka_dump_log", ["--file", "x"], "--files"),
        ("connect_standalone", ["--demon", "x"], "--daemon"),
    ],
)
def test_programs_of_their_own_correct_too(
    module: str,
    words: list[str],
    suggested: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", [module.replace("_", "-"), *words])
    with pytest.raises(SystemExit) as ended:
        import_module(f"ottla.cli.{module}").main()
    assert ended.value.code == 1
    assert f" Did you mean {suggested}" in capsys.readouterr().err


def test_a_hidden_option_is_not_suggested() -> None:
    result = CliRunner().invoke(ottla, ["topics", "--list", "--zookeepr", "x"])
    assert "zookeeper" not in result.stderr
    assert "No such option '--zookeepr'." in result.stderr
