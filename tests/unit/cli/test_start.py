"""From a command line to a broker's configuration."""

from __future__ import annotations

import logging
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.base.config.broker import BrokerConfig, Listener
from ottla.cli import kafka_server_start, main

Command = Callable[..., int]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[BrokerConfig]:
    """Stands in for the broker; collects the configurations it was started with."""
    configs: list[BrokerConfig] = []

    def run(config: BrokerConfig) -> int:
        configs.append(config)
        return 0

    broker = types.ModuleType("ottla.broker.main")
    broker.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ottla.broker.main", broker)
    return configs


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    return tmp_path


@pytest.fixture
def ottla(monkeypatch: pytest.MonkeyPatch) -> Command:
    def call(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["ottla", *arguments])
        with pytest.raises(SystemExit) as exit_request:
            main.main()
        assert isinstance(exit_request.value.code, int)
        return exit_request.value.code

    return call


@pytest.fixture
def server_start(monkeypatch: pytest.MonkeyPatch) -> Command:
    def call(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["kafka-server-start", *arguments])
        with pytest.raises(SystemExit) as exit_request:
            kafka_server_start.main()
        assert isinstance(exit_request.value.code, int)
        return exit_request.value.code

    return call


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_broker_starts_without_options(
    ottla: Command, started: list[BrokerConfig], home: Path
) -> None:
    assert ottla("broker") == 0
    (config,) = started
    assert config.listeners == [Listener("PLAINTEXT", "127.0.0.1", 9092)]
    assert config.log_dirs == [str(home / ".local/share/ottla")]


def test_data_goes_where_xdg_says(
    ottla: Command, started: list[BrokerConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/xdg")
    ottla("broker")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    ottla("broker")
    assert [config.log_dirs[0] == "/xdg/ottla" for config in started] == [True, False]


def test_options_win_over_the_file_and_overrides_over_both(
    ottla: Command, started: list[BrokerConfig], tmp_path: Path
) -> None:
    file = write(
        tmp_path / "server.properties",
        "log.dirs=/file\nlisteners=PLAINTEXT://file:1\nnum.partitions=7\n",
    )
    ottla("broker", "--config", file, "--data-dir", "/option", "--listen", "[::1]:0")
    ottla("broker", "--config", file, "--data-dir", "/option", "--override", "log.dirs=/override")
    first, second = started
    assert first.num_partitions == 7
    assert first.log_dirs == ["/option"]
    assert first.listeners == [Listener("PLAINTEXT", "::1", 0)]
    assert second.log_dirs == ["/override"]
    assert second.listeners == [Listener("PLAINTEXT", "file", 1)]


def test_the_brokers_exit_code_is_the_commands(
    ottla: Command, started: list[BrokerConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["ottla.broker.main"], "run", lambda config: 3)
    assert ottla("broker") == 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--override", "num.partitions=none"],
            "Invalid value none for configuration num.partitions: "
            "the value must be a whole number that fits in 32 bits.\n",
        ),
        (["--override", "oops"], "The override 'oops' must look like key=value.\n"),
        (
            ["--listen", "9092"],
            "Invalid value PLAINTEXT://9092 for configuration listeners: "
            "the value must look like NAME://host:port, with a port up to 65535.\n",
        ),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_1(
    ottla: Command,
    started: list[BrokerConfig],
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    sentence: str,
) -> None:
    assert ottla("broker", *arguments) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", sentence)
    assert started == []


def test_a_mistake_in_usage_is_exit_code_2(ottla: Command) -> None:
    assert ottla("broker", "--no-such-option") == 2


def test_help_succeeds(ottla: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert ottla("--help") == 0
    assert "broker" in capsys.readouterr().out


def test_version_is_the_packages(ottla: Command, capsys: pytest.CaptureFixture[str]) -> None:
    from ottla import __version__

    assert ottla("version") == 0
    assert capsys.readouterr().out.startswith(f"ottla {__version__} ")


def test_kafka_server_start_is_called_as_kafkas_script(
    server_start: Command, started: list[BrokerConfig], tmp_path: Path
) -> None:
    file = write(tmp_path / "server.properties", "log.dirs=/file\nnum.partitions=7\n")
    assert server_start(file, "--override", "num.partitions=8", "--override", "node.id=4") == 0
    assert server_start("-name", "kafka", "-loggc", file) == 0
    first, second = started
    assert (first.num_partitions, first.node_id, first.log_dirs) == (8, 4, ["/file"])
    assert second.num_partitions == 7


def test_kafka_server_start_without_its_file_is_one_sentence(
    server_start: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert server_start("absent.properties") == 1
    assert capsys.readouterr().err == (
        "Cannot read the configuration file absent.properties: no such file or directory.\n"
    )


def test_what_the_configuration_should_have_said_is_logged(
    ottla: Command, started: list[BrokerConfig], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        ottla("broker", "--override", "num.partition=3", "--override", "process.roles=broker")
    assert [(record.levelname, record.message.split(" ")[0]) for record in caplog.records] == [
        ("WARNING", "num.partition"),
        ("INFO", "process.roles"),
    ]
    assert "did you mean num.partitions?" in caplog.text
    assert len(started) == 1
