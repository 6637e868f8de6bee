"""No client, tool or worker shows a secret: in output, logs, representations, errors or answers."""

from __future__ import annotations

import http.client
import json
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.connect.workers import Standalone
from tests.integration.cli.running import Run, running_on
from tests.integration.security.sasl_broker import plain_jaas

from ottla import Admin, AsyncConsumer, AsyncProducer, Consumer, KafkaError, Producer, UserError
from ottla import streams as st
from ottla.connect.rest.server import RestServer
from ottla.testing.broker_thread import BrokerThread

SECRET = "MARKER-of-the-tests"
TIMEOUT_S = 20.0


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    overrides = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain_jaas({"alice": SECRET}),
    }
    with BrokerThread(overrides=overrides) as broker:
        yield broker


@pytest.fixture
def address(broker: BrokerThread) -> str:
    return f"127.0.0.1:{broker.broker.ports['SASL_PLAINTEXT']}"


@pytest.fixture
def properties() -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'm required username="alice" password="{SECRET}";',
    }


@pytest.fixture
def profile(tmp_path: Path, properties: dict[str, str]) -> str:
    return write(tmp_path / "client.properties", properties)


def write(path: Path, properties: dict[str, str]) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return str(path)


@pytest.fixture(autouse=True)
def _logs_are_searched(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.DEBUG):
        yield
    for when in ("setup", "call"):
        for record in caplog.get_records(when):
            text = record.getMessage()
            if record.exc_info:
                text += "".join(traceback.format_exception(*record.exc_info))
            assert SECRET not in text


TOOLS: list[tuple[str, ...]] = [
    ("topics", "--create", "--topic", "hidden"),
    ("topics", "--list"),
    ("topics", "--describe", "--topic", "hidden"),
    ("configs", "--alter", "--topic", "hidden", "--add-config", "retention.ms=86400000"),
    ("configs", "--describe", "--topic", "hidden", "--all"),
    ("configs", "--describe", "--entity-type", "brokers", "--entity-name", "1", "--all"),
    ("configs", "--alter", "--entity-type", "users", "--entity-name", "bob",
     "--add-config", f"SCRAM-SHA-256=[password={SECRET}]"),
    ("configs", "--describe", "--entity-type", "users"),
    ("console-producer", "--topic", "hidden"),
    ("console-consumer", "--topic", "hidden", "--from-beginning", "--max-messages", "1",
     "--timeout-ms", "20000"),
    ("producer-perf-test", "--topic", "hidden", "--num-records", "1", "--record-size", "1",
     "--throughput", "-1", "--print-metrics"),
    ("consumer-perf-test", "--topic", "hidden", "--num-records", "1", "--print-metrics"),
    ("get-offsets", "--topic", "hidden"),
    ("consumer-groups", "--list"),
    ("log-dirs", "--describe"),
    ("features", "describe"),
    ("transactions", "list"),
    ("broker-api-versions",),
    ("cluster", "cluster-id"),
]  # fmt: skip


def arguments(words: tuple[str, ...], profile: str) -> list[str]:
    option = "--config" if words[0] == "cluster" else "--command-config"
    at = 2 if words[0] in ("features", "transactions", "cluster") else 1
    return [*words[:at], option, profile, *words[at:]]


def ran(run: Run, words: tuple[str, ...], profile: str) -> Any:
    given = arguments(words, profile)
    two = words[0] in ("features", "transactions", "cluster")
    tool, rest = (" ".join(given[:2]), given[2:]) if two else (given[0], given[1:])
    found = run(tool, *rest, stdin="a record\n")
    assert SECRET not in found.out + found.err
    return found


@pytest.mark.parametrize("words", TOOLS, ids=lambda words: " ".join(words[:3]))
def test_tools_show_no_secret(words: tuple[str, ...], address: str, profile: str) -> None:
    if words[0] not in ("topics", "configs"):
        ran(running_on(address), ("topics", "--create", "--if-not-exists", "--topic", "hidden"),
            profile)  # fmt: skip
        ran(running_on(address), ("console-producer", "--topic", "hidden"), profile)
    found = ran(running_on(address), words, profile)
    assert found.code == 0, found


@pytest.mark.parametrize("words", TOOLS, ids=lambda words: " ".join(words[:3]))
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("sasl.jaas.config", f"m required username=x password={SECRET};", "credentials"),
        ("ssl.keystore.key", SECRET, "must be set together"),
        ("sasl.pasword", SECRET, ""),
    ],
)
def test_errors_of_tools_show_no_secret(
    words: tuple[str, ...],
    name: str,
    value: str,
    message: str,
    address: str,
    tmp_path: Path,
    properties: dict[str, str],
) -> None:
    if message == "must be set together":
        properties["security.protocol"] = "SASL_SSL"
    path = write(tmp_path / "wrong.properties", {**properties, name: value})
    found = ran(running_on(address), words, path)
    if message:
        assert found.code == 1, found
        assert message in found.err


def test_clients_show_no_secret(address: str, properties: dict[str, str]) -> None:
    given: dict[str, Any] = {
        **properties,
        "sasl.password": SECRET,
        "ssl.key.password": SECRET,
        "ssl.keystore.key": SECRET,
        "ssl.keystore.password": SECRET,
        "ssl.truststore.password": SECRET,
        "sasl.oauthbearer.client.secret": SECRET,
    }
    kinds: list[Any] = [Admin, Consumer, Producer, AsyncConsumer, AsyncProducer]
    for kind in kinds:
        client = kind(address, profile=given)
        for shown in (client, client.config, vars(client)):
            assert SECRET not in repr(shown)
            assert SECRET not in str(shown)
        if not kind.__name__.startswith("Async"):
            client.close()


@pytest.mark.parametrize(
    "keywords",
    [
        {"sasl_pasword": SECRET},
        {"sasl_password": SECRET, "sasl_username": "alice", "sasl_mechanism": "SCRAM-SHA-256"},
        {"sasl_jaas_config": SECRET},
        {"security_protocol": "SSL", "ssl_keystore_key": SECRET},
        {
            "security_protocol": "SSL",
            "ssl_keystore_key": SECRET,
            "ssl_keystore_certificate_chain": SECRET,
        },
        {"sasl_mechanism": "OAUTHBEARER", "oauth_cb": lambda: (SECRET, "soon")},
        {"sasl_mechanism": "OAUTHBEARER", "oauth_cb": lambda: (SECRET, 9e9)},
        {"sasl_mechanism": "OAUTHBEARER", "oauth_cb": SECRET},
        {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": "http://127.0.0.1:1/",
            "sasl_oauthbearer_client_id": "me",
            "sasl_oauthbearer_client_secret": SECRET,
        },
    ],
)
def test_errors_of_clients_show_no_secret(
    keywords: dict[str, Any], address: str, properties: dict[str, str]
) -> None:
    for kind in (Admin, Consumer, Producer):
        with pytest.raises((KafkaError, UserError)) as failure:
            kind(address, profile=properties, default_api_timeout_ms=500, **keywords)
        lines = traceback.format_exception(failure.value)
        quoted = [line for line in lines if SECRET in line]
        assert not quoted, quoted


def test_applications_of_streams_show_no_secret(address: str, properties: dict[str, str]) -> None:
    app = st.App("hidden", address, client={**properties, "sasl.password": SECRET})
    app.stream("hidden", value=st.String).filter(lambda value: value != "").to("elsewhere")
    for shown in (app, app.application(), app.explain(), app.topology()):
        assert SECRET not in repr(shown) + str(shown)


# --------------------------------------------------------------------------------------- Connect


def answer(port: int, method: str, path: str, body: Any = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_a_worker_of_connect_shows_no_secret(
    address: str, properties: dict[str, str], tmp_path: Path
) -> None:
    secrets = write(tmp_path / "secrets", {"password": SECRET, "number": SECRET})
    worker = Standalone(
        address,
        tmp_path,
        **{name.replace(".", "_"): value for name, value in properties.items()},
        config_providers="file",
        config_providers_file_class="FileConfigProvider",
    )
    rest = RestServer(worker.herder)
    rest.start()
    try:
        (port,) = rest.ports
        config = {
            "connector.class": "HttpSink",
            "topics": "hidden",
            "http.url": "http://127.0.0.1:1/",
            "http.basic.user": "me",
            "http.basic.password": f"${{file:{secrets}:password}}",
            "consumer.override.sasl.jaas.config": (
                f'm required username="alice" password="${{file:{secrets}:password}}";'
            ),
        }
        assert answer(port, "PUT", "/connectors/sink/config", config)[0] == 201
        wrong = {**config, "tasks.max": f"${{file:{secrets}:number}}"}
        plain = {**config, "http.basic.password": SECRET}
        status, text = answer(port, "PUT", "/connectors/wrong/config", wrong)
        assert status == 400
        found = [
            text,
            answer(port, "PUT", "/connector-plugins/HttpSink/config/validate", plain)[1],
            *(
                answer(port, "GET", path)[1]
                for path in (
                    "/",
                    "/connectors?expand=info&expand=status",
                    "/connectors/sink",
                    "/connectors/sink/config",
                    "/connectors/sink/status",
                    "/connectors/sink/tasks",
                    "/connectors/sink/tasks-config",
                    "/connector-plugins/HttpSink/config",
                )
            ),
        ]
        for each in found:
            assert SECRET not in each
        assert "[hidden]" in found[1]
        assert SECRET not in repr(worker.herder.config)
        assert SECRET not in repr(vars(worker.herder))
    finally:
        rest.close()
        worker.close()
