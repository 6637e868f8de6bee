"""Secrets of connectors and workers: variables instead of values, and values that stay hidden."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.client.certificates import Authority, needs_openssl

from ottla.base.errors import UserError
from ottla.connect.config import ConnectorConfig, InvalidConnector
from ottla.connect.offset_storage import TopicOffsetStorage
from ottla.connect.rest.plugins import validated
from ottla.connect.states import TaskId
from ottla.connect.task_context import TaskContext
from ottla.connect.worker_config import WorkerConfig
from ottla.connect.worker_file import load_worker_file

SECRET = "MARKER"


@pytest.fixture
def worker(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "secrets").write_text(f"password={SECRET}\nnumber={SECRET}1\n")
    return {
        "bootstrap.servers": "a:1",
        "key.converter": "StringConverter",
        "value.converter": "StringConverter",
        "offset.storage.file.filename": str(tmp_path / "offsets"),
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    }


def connector(**more: str) -> dict[str, str]:
    return {
        "name": "sink",
        "connector.class": "HttpSink",
        "topics": "t",
        "http.url": "http://localhost:1/",
        "http.basic.user": "me",
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def variable(tmp_path: Path, key: str) -> str:
    return f"${{file:{tmp_path}/secrets:{key}}}"


def test_a_connector_gets_the_values_and_shows_the_variables(
    worker: dict[str, str], tmp_path: Path
) -> None:
    password = variable(tmp_path, "password")
    given = connector(http__basic__password=password, consumer__override__sasl__password=password)
    made = ConnectorConfig.of(given, worker)
    assert made.given == given
    assert made.connector.settings["http.basic.password"] == SECRET
    assert made.client("consumer") == {"sasl.password": SECRET}
    assert SECRET not in repr(made)


def test_a_variable_without_a_value_is_an_error_of_its_property(
    worker: dict[str, str], tmp_path: Path
) -> None:
    given = connector(http__basic__password=variable(tmp_path, "missing"))
    found = validated(given, worker)
    assert found["error_count"] == 1
    (failed,) = (each["value"] for each in found["configs"] if each["value"]["errors"])
    assert failed["name"] == "http.basic.password"
    assert "has no value" in failed["errors"][0]


def test_errors_name_the_variable_instead_of_its_value(
    worker: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(InvalidConnector, match=r"Invalid value \$\{file:.*number\}") as failure:
        ConnectorConfig.of(connector(tasks__max=variable(tmp_path, "number")), worker)
    assert SECRET not in str(failure.value)


def test_validation_hides_passwords(worker: dict[str, str]) -> None:
    found = validated(connector(http__basic__password=SECRET), worker)
    values = {each["value"]["name"]: each["value"]["value"] for each in found["configs"]}
    assert values["http.basic.password"] == "[hidden]"
    assert values["http.basic.user"] == "me"
    assert SECRET not in str(found)


def test_a_worker_resolves_its_own_properties(worker: dict[str, str], tmp_path: Path) -> None:
    worker["producer.sasl.password"] = variable(tmp_path, "password")
    config = WorkerConfig.of(worker)
    assert config.client("producer")["sasl.password"] == SECRET
    assert config.notices() == []
    assert SECRET not in repr(config)
    assert "config.providers" not in config.for_executors()


@needs_openssl
def test_executors_need_no_files(worker: dict[str, str], tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.sign("me", "DNS:me")
    worker |= {
        "security.protocol": "SSL",
        "ssl.ca.location": authority.certificate,
        "consumer.ssl.certificate.location": own.certificate,
        "consumer.ssl.key.location": own.key,
    }
    found = WorkerConfig.of(worker).for_executors()
    assert not [name for name in found if name.endswith(".location")]
    executor = WorkerConfig.of(found)
    assert executor.client("consumer")["ssl.keystore.key"] == Path(own.key).read_text().strip()
    assert "ssl.keystore.key" not in executor.client("producer")
    trusted = Path(authority.certificate).read_text()
    for kind in ("producer", "consumer", "admin"):
        assert executor.client(kind)["ssl.truststore.certificates"] == trusted


@needs_openssl
def test_executors_need_no_files_of_overridden_clients(
    worker: dict[str, str], tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    own = authority.sign("me", "DNS:me", password=SECRET)
    config = WorkerConfig.of(worker | {"security.protocol": "SSL"})
    overrides = {
        "ssl.ca.location": authority.certificate,
        "ssl.certificate.location": own.certificate,
        "ssl.key.location": own.key,
        "ssl.key.password": SECRET,
        "fetch.min.bytes": "7",
    }
    given = connector(**{f"consumer.override.{name}": text for name, text in overrides.items()})
    made = ConnectorConfig.of(given, config.given)
    context = TaskContext(
        TaskId("sink", 0), made, made.connector.settings, config, TopicOffsetStorage("o"), "sink",
        "sink-0", tmp_path,
    )  # fmt: skip
    sent = context.connector_for_executors()
    assert not [name for name in sent if name.endswith(".location")]
    consumer = ConnectorConfig.of(sent, config.given).client("consumer")
    assert consumer["ssl.keystore.key"] == Path(own.key).read_text().strip()
    assert consumer["ssl.key.password"] == SECRET
    assert consumer["ssl.truststore.certificates"] == Path(authority.certificate).read_text()
    assert consumer["fetch.min.bytes"] == "7"
    assert {name: sent[name] for name in connector()} == connector()


def test_a_worker_file_has_the_default_profile_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = tmp_path / "client.properties"
    profile.write_text("security.protocol=SSL\nclient.id=profile\nacks=1\n")
    monkeypatch.setenv("OTTLA_PROFILE", str(profile))
    file = tmp_path / "worker.properties"
    file.write_text("client.id=worker\nproducer.ssl.keystore.location=me.pem\n")
    assert load_worker_file(str(file)) == {
        "security.protocol": "SSL",
        "client.id": "worker",
        "producer.ssl.keystore.location": str(tmp_path / "me.pem"),
    }


def test_a_provider_of_the_worker_must_exist(worker: dict[str, str]) -> None:
    with pytest.raises(UserError, match="FileConfigProvider, DirectoryConfigProvider"):
        WorkerConfig.of(worker | {"config.providers.file.class": "com.example.Vault"})
