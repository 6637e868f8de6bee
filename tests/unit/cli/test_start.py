"""Tests of turning a command line into a broker configuration."""

from __future__ import annotations

import logging
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.base.config.broker import BrokerConfig, Listener
from ottla.cli import kafka_server_start, listening, main

Command = Callable[..., int]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[BrokerConfig]:
    """Replace the broker and return the list of configurations it is started with."""
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


def test_data_goes_to_the_directory_of_xdg(
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
    assert ottla("broker", "--no-such-option") == 1


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


def test_unknown_and_unused_properties_are_logged(
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


MACHINE = "192.0.2.7"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> str:
    """Replace the network look-up and return the address of this machine."""
    monkeypatch.setattr(listening, "_machine_address", lambda host: MACHINE)
    return MACHINE


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", ""])
def test_a_broker_on_every_interface_advertises_this_machine_and_warns(
    ottla: Command,
    started: list[BrokerConfig],
    machine: str,
    caplog: pytest.LogCaptureFixture,
    host: str,
) -> None:
    assert ottla("broker", "--listen", f"{host}:9092", "--insecure") == 0
    (config,) = started
    assert config.advertised_listeners == [Listener("PLAINTEXT", machine, 9092)]
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert f"clients are sent to PLAINTEXT://{machine}:9092" in caplog.text
    assert "--advertise HOST[:PORT]" in caplog.text
    assert "open to other machines, without encryption or authentication" in caplog.text


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("kafka.example.com", Listener("PLAINTEXT", "kafka.example.com", 9092)),
        ("kafka.example.com:19092", Listener("PLAINTEXT", "kafka.example.com", 19092)),
        ("192.0.2.9", Listener("PLAINTEXT", "192.0.2.9", 9092)),
        ("2001:db8::9", Listener("PLAINTEXT", "2001:db8::9", 9092)),
        ("[2001:db8::9]:19092", Listener("PLAINTEXT", "2001:db8::9", 19092)),
    ],
)
def test_advertise_is_the_address_that_clients_are_sent_to(
    ottla: Command,
    started: list[BrokerConfig],
    caplog: pytest.LogCaptureFixture,
    given: str,
    expected: Listener,
) -> None:
    options = ("--listen", "0.0.0.0:9092", "--advertise", given, "--insecure")
    assert ottla("broker", *options) == 0
    assert started[0].advertised_listeners == [expected]
    assert "clients are sent to" not in caplog.text


def test_advertise_works_with_the_listener_of_a_file_and_loses_to_an_override(
    ottla: Command, started: list[BrokerConfig], tmp_path: Path
) -> None:
    text = """
        process.roles=broker,controller
        listeners=PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093
        controller.listener.names=CONTROLLER
        """
    file = write(tmp_path / "server.properties", text)
    assert ottla("broker", "--config", file, "--advertise", "a") == 0
    override = "advertised.listeners=PLAINTEXT://b:1"
    assert ottla("broker", "--config", file, "--advertise", "a", "--override", override) == 0
    first, second = started
    assert first.advertised_listeners == [Listener("PLAINTEXT", "a", 9092)]
    assert second.advertised_listeners == [Listener("PLAINTEXT", "b", 1)]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--advertise", "a b"], "--advertise 'a b' must look like HOST or HOST:PORT.\n"),
        (["--advertise", "a:0"], "--advertise 'a:0' must look like HOST or HOST:PORT.\n"),
        (["--advertise", ":9"], "--advertise ':9' must look like HOST or HOST:PORT.\n"),
        (
            ["--advertise", "a", "--override", "listeners=A://127.0.0.1:1,B://127.0.0.1:2"],
            "--advertise sets the address of one listener, but there are 2 (A, B). Set "
            "advertised.listeners instead.\n",
        ),
        (
            ["--listen", "0.0.0.0:9092"],
            "PLAINTEXT://0.0.0.0:9092 is open to other machines, without encryption or "
            "authentication. Create certificates and users with `ottla secure init`, listen on "
            "127.0.0.1, or add --insecure if that is intended.\n",
        ),
        (
            ["--override", "listeners=PLAINTEXT://192.0.2.1:9092"],
            "PLAINTEXT://192.0.2.1:9092 is open to other machines, without encryption or "
            "authentication. Create certificates and users with `ottla secure init`, listen on "
            "127.0.0.1, or add --insecure if that is intended.\n",
        ),
    ],
)
def test_an_address_that_cannot_be_meant_is_refused(
    ottla: Command,
    started: list[BrokerConfig],
    machine: str,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    sentence: str,
) -> None:
    assert ottla("broker", *arguments) == 1
    assert capsys.readouterr().err == sentence
    assert started == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.8.9.10"])
def test_a_listener_on_loopback_needs_no_insecure(
    ottla: Command, started: list[BrokerConfig], caplog: pytest.LogCaptureFixture, host: str
) -> None:
    assert ottla("broker", "--listen", f"{host}:9092") == 0
    assert len(started) == 1
    assert caplog.records == []


def test_a_property_file_that_listens_beyond_loopback_starts_with_a_warning(
    ottla: Command,
    server_start: Command,
    started: list[BrokerConfig],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = write(tmp_path / "server.properties", "listeners=PLAINTEXT://192.0.2.1:9092\n")
    for start in (lambda: server_start(file), lambda: ottla("broker", "--config", file)):
        caplog.clear()
        assert start() == 0
        (warning,) = caplog.records
        assert warning.levelname == "WARNING"
        assert warning.message.startswith("PLAINTEXT://192.0.2.1:9092 is open to other machines")
    assert len(started) == 2


def test_a_property_file_that_advertises_every_interface_is_refused_as_kafka_does(
    server_start: Command, started: list[BrokerConfig], tmp_path: Path
) -> None:
    file = write(tmp_path / "server.properties", "listeners=PLAINTEXT://0.0.0.0:9092\n")
    assert server_start(file) == 1
    assert started == []


TLS_WITHOUT_AUTHENTICATION = "listeners=SSL://192.0.2.1:9092\nssl.keystore.location=broker.pem\n"


def test_tls_without_authentication_counts_as_open(
    ottla: Command,
    started: list[BrokerConfig],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = write(tmp_path / "server.properties", TLS_WITHOUT_AUTHENTICATION)
    assert ottla("broker", "--config", file, "--listen", "192.0.2.1:9092") == 1
    error = capsys.readouterr().err
    assert "without authentication (SASL_SSL, or ssl.client.auth=required)" in error
    assert "`ottla secure init`" in error
    assert ottla("broker", "--config", file) == 0
    assert "without authentication" in caplog.text
    caplog.clear()
    override = "ssl.client.auth=required"
    assert ottla("broker", "--config", file, "--override", override) == 0
    assert caplog.records == []
    assert len(started) == 2


def test_sasl_without_tls_counts_as_open_and_with_tls_as_closed(
    ottla: Command, started: list[BrokerConfig], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "sasl.enabled.mechanisms=SCRAM-SHA-512\nssl.keystore.location=broker.pem\n"
    file = write(tmp_path / "server.properties", text)
    for protocol, warning in (("SASL_PLAINTEXT", "without encryption: everyone"), ("SASL_SSL", "")):
        caplog.clear()
        listeners = f"listeners={protocol}://192.0.2.1:9092"
        code = ottla("broker", "--config", file, "--override", listeners)
        assert code == (1 if warning else 0)
        assert ottla("broker", "--config", file, "--override", listeners, "--insecure") == 0
        assert (warning in caplog.text) if warning else caplog.records == []
    assert len(started) == 3


def test_an_address_on_the_command_line_keeps_the_security_of_the_files_listener(
    ottla: Command, started: list[BrokerConfig], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "listeners=EXTERNAL://:9092\nlistener.security.protocol.map=EXTERNAL:SSL\n"
    file = write(tmp_path / "server.properties", f"{text}ssl.client.auth=required\n")
    assert ottla("broker", "--config", file, "--listen", "127.0.0.1:1") == 0
    (config,) = started
    assert config.listeners == [Listener("EXTERNAL", "127.0.0.1", 1)]
    write(tmp_path / "server.properties", "listeners=SSL://:1,PLAINTEXT://:2\n")
    assert ottla("broker", "--config", file, "--listen", "127.0.0.1:1") == 1
    assert "but the file has 2 (SSL, PLAINTEXT)" in capsys.readouterr().err


def test_a_directory_of_secure_init_takes_the_place_of_a_configuration_file(
    ottla: Command, started: list[BrokerConfig], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secure = tmp_path / "secure"
    secure.mkdir()
    assert ottla("broker", "--secure", str(secure)) == 1
    assert capsys.readouterr().err == (
        f"{secure} has no server.properties. Create it with: ottla secure init --dir {secure}\n"
    )
    file = write(secure / "server.properties", "listeners=SSL://127.0.0.1:7\n")
    assert ottla("broker", "--secure", str(secure)) == 0
    assert started[0].listeners == [Listener("SSL", "127.0.0.1", 7)]
    assert ottla("broker", "--secure", str(secure), "--config", file) == 1
    assert "--secure and --config cannot be used together." in capsys.readouterr().err
    (secure / "server.properties").unlink()
    for id in (1, 2):
        write(secure / f"broker-{id}.pem", "")
        write(secure / f"server-{id}.properties", "")
    assert ottla("broker", "--secure", str(secure)) == 1
    assert capsys.readouterr().err == (
        f"{secure} is for several brokers. Choose one with --config: "
        f"{secure}/server-1.properties, {secure}/server-2.properties\n"
    )
