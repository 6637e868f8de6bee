"""Tests of the ways to pass a client's properties."""

from __future__ import annotations

import dataclasses
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import UserError
from ottla.client.admin.config import AdminConfig
from ottla.client.config import CALLBACK, CommonConfig, parse_server, table_of
from ottla.client.consumer.config import ConsumerConfig
from ottla.client.errors import InvalidConfig
from ottla.client.librdkafka import ALIASES, REMEDIES
from ottla.client.producer.config import ProducerConfig

ALL = [AdminConfig, CommonConfig, ConsumerConfig, ProducerConfig]


def config(bootstrap: str | None = None, profile: Any = None, **keywords: Any) -> CommonConfig:
    return CommonConfig.of(bootstrap, profile, keywords)


def test_defaults_are_kafkas() -> None:
    found = config()
    assert found.bootstrap_servers == ["localhost:9092"]
    assert (found.request_timeout_ms, found.default_api_timeout_ms) == (30_000, 60_000)
    assert (found.retry_backoff_ms, found.retry_backoff_max_ms) == (100, 1_000)
    assert (found.metadata_max_age_ms, found.connections_max_idle_ms) == (300_000, 540_000)
    assert found.security_protocol == "PLAINTEXT"


@pytest.mark.parametrize("kind", ALL)
def test_every_default_passes_its_own_checks(kind: type[CommonConfig]) -> None:
    table = table_of(kind)
    for field in dataclasses.fields(kind):
        if field.name == CALLBACK:
            continue
        key = table[field.name.replace("_", ".")]
        value = getattr(kind(), field.name)
        if value is not None and not isinstance(value, list):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            assert key.parse(text) == value
        assert field.metadata["doc"].endswith((".", "…"))


def test_a_list_or_a_text_names_the_brokers() -> None:
    assert config("a:1,b:2").bootstrap_servers == ["a:1", "b:2"]
    assert CommonConfig.of(["a:1", "b:2"], None, {}).bootstrap_servers == ["a:1", "b:2"]


def test_keywords_win_over_the_profile_and_bootstrap_over_both(tmp_path: Path) -> None:
    profile = tmp_path / "client.properties"
    profile.write_text("bootstrap.servers=file:1\nclient.id=from the file\nretry.backoff.ms=7\n")
    found = config("given:2", profile, client_id="keyword")
    assert found.bootstrap_servers == ["given:2"]
    assert (found.client_id, found.retry_backoff_ms) == ("keyword", 7)
    assert config(None, profile).bootstrap_servers == ["file:1"]
    assert config(None, {"retry.backoff.ms": 9}).retry_backoff_ms == 9


def test_an_unknown_keyword_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(
        InvalidConfig, match=r"retry\.backof\.ms does not exist; did you mean retry\.backoff\.ms"
    ):
        config(retry_backof_ms=1)


def test_an_unknown_property_in_a_profile_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config(None, {"no.such.thing": "1"})
    assert "no.such.thing" in caplog.text


def test_a_profile_is_shared_between_kinds_of_clients(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        AdminConfig.of(None, {"linger.ms": "5", "group.id": "g"}, {})
    assert not caplog.records


@pytest.mark.parametrize(
    "wrong",
    [
        {"request_timeout_ms": 0},
        {"request_timeout_ms": "soon"},
        {"retry_backoff_ms": -1},
        {"security_protocol": "TLS"},
        {"sasl_mechanism": "GSSAPI"},
        {"ssl_truststore_type": "DER"},
        {"bootstrap_servers": ""},
        {"bootstrap_servers": "no-port"},
    ],
)
def test_a_wrong_value_is_one_sentence(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig) as failure:
        config(**wrong)
    assert isinstance(failure.value, UserError | ValueError)
    assert "Traceback" not in str(failure.value)
    assert next(iter(wrong)).replace("_", ".") in str(failure.value)


def test_a_profile_that_cannot_be_read_is_one_sentence() -> None:
    with pytest.raises(UserError, match="Cannot read the configuration file /nowhere/x"):
        config(None, "/nowhere/x")


def test_secrets_are_not_shown() -> None:
    secret = "open sesame"
    found = config(
        sasl_password=secret, sasl_jaas_config=f"password={secret}", ssl_key_password=secret
    )
    assert secret not in repr(found)
    assert found.sasl_password == secret


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("localhost:9092", ("localhost", 9092)),
        ("[::1]:9092", ("::1", 9092)),
        ("PLAINTEXT://broker.example:1", ("broker.example", 1)),
    ],
)
def test_servers_are_hosts_and_ports(text: str, server: tuple[str, int]) -> None:
    assert parse_server(text) == server


@pytest.mark.parametrize("text", ["", "host", ":9092", "host:", "host:x", "host:0", "host:65536"])
def test_what_is_no_server_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"is invalid\. Use the form host:port"):
        parse_server(text)


def test_the_hosts_name_is_not_checked_if_the_algorithm_is_empty() -> None:
    assert (
        config(ssl_endpoint_identification_algorithm="").ssl_endpoint_identification_algorithm == ""
    )


# ------------------------------------------------------------------- hints for unknown names


@pytest.mark.parametrize(
    ("kind", "keyword", "hint"),
    [
        (ConsumerConfig, "topic", "topics"),
        (ConsumerConfig, "value_deserialiser", "value_deserializer"),
        (ConsumerConfig, "groupid", "group.id"),
        (ProducerConfig, "value_serialiser", "value_serializer"),
        (ProducerConfig, "partioner", "partitioner"),
        (ProducerConfig, "linger", "linger.ms"),
        (AdminConfig, "bootstrap_server", "bootstrap.servers"),
        (AdminConfig, "profil", "profile"),
    ],
)
def test_hints_name_properties_and_arguments(
    kind: type[CommonConfig], keyword: str, hint: str
) -> None:
    name = keyword.replace("_", ".")
    for bootstrap, keywords in ((None, {keyword: "x"}), ({name: "x"}, {})):
        with pytest.raises(InvalidConfig) as failure:
            kind.of(bootstrap, None, keywords)
        assert str(failure.value) == f"Property {name} does not exist; did you mean {hint}?"


def test_a_property_of_another_client_is_an_error_that_names_the_client() -> None:
    with pytest.raises(
        InvalidConfig, match=r"group\.id is a property of the consumer, not of the producer\.$"
    ):
        ProducerConfig.of({"group.id": "g"}, None, {})
    with pytest.raises(
        InvalidConfig, match=r"linger\.ms is a property of the producer, not of the admin\.$"
    ):
        AdminConfig.of(None, None, {"linger_ms": 1})


def test_an_argument_in_a_dictionary_is_an_error_that_names_its_place() -> None:
    with pytest.raises(InvalidConfig, match=r"value\.serializer is an argument.* value_serializer"):
        ProducerConfig.of({"value.serializer": "json"}, None, {})
    with pytest.raises(InvalidConfig, match="Write topics=…"):
        ConsumerConfig.of({"topics": "orders"}, None, {})


# ------------------------------------------------------------------------- dotted dictionaries


def test_a_dictionary_may_be_the_first_argument_and_keywords_take_precedence() -> None:
    found = ProducerConfig.of(
        {"bootstrap.servers": "a:1,b:2", "acks": "all", "linger.ms": 7, "client.id": "dictionary"},
        {"linger.ms": 8, "batch.size": "9"},
        {"client_id": "keyword"},
    )
    assert found.bootstrap_servers == ["a:1", "b:2"]
    assert (found.acks, found.linger_ms, found.batch_size) == ("all", 7, 9)
    assert found.client_id == "keyword"


def test_values_may_be_strings_or_python_values() -> None:
    found = ProducerConfig.of(
        {
            "bootstrap.servers": ["a:1", "b:2"],
            "acks": -1,
            "enable.idempotence": True,
            "linger.ms": "20",
            "delivery.timeout.ms": 90e3,
            "transactional.id": None,
        },
        None,
        {},
    )
    assert found.bootstrap_servers == ["a:1", "b:2"]
    assert (found.required_acks, found.enable_idempotence) == (-1, True)
    assert (found.linger_ms, found.delivery_timeout_ms) == (20, 90_000)
    assert found.transactional_id == ""


@pytest.mark.parametrize(
    ("kind", "name", "value", "attribute"),
    [
        (CommonConfig, "metadata.broker.list", "a:1", "bootstrap_servers"),
        (CommonConfig, "sasl.mechanisms", "SCRAM-SHA-256", "sasl_mechanism"),
        (ConsumerConfig, "fetch.message.max.bytes", 7, "max_partition_fetch_bytes"),
        (ConsumerConfig, "fetch.wait.max.ms", 7, "fetch_max_wait_ms"),
        (ProducerConfig, "compression.codec", "zstd", "compression_type"),
        (ProducerConfig, "max.in.flight", 2, "max_in_flight_requests_per_connection"),
        (ProducerConfig, "message.send.max.retries", 3, "retries"),
        (ProducerConfig, "message.timeout.ms", 70_000, "delivery_timeout_ms"),
        (ProducerConfig, "queue.buffering.max.ms", 3, "linger_ms"),
        (ProducerConfig, "request.required.acks", "1", "acks"),
    ],
)
def test_librdkafkas_other_names_of_kafkas_properties_are_accepted(
    kind: type[CommonConfig], name: str, value: Any, attribute: str
) -> None:
    found = getattr(kind.of({name: value}, None, {}), attribute)
    assert found == ([value] if isinstance(found, list) else value)
    assert getattr(kind.of(None, {name: value}, {}), attribute) == found


def test_every_alias_stands_for_a_property() -> None:
    known = {key.name for kind in ALL for key in table_of(kind)}
    assert set(ALIASES.values()) <= known
    assert known.isdisjoint(ALIASES)
    assert known.isdisjoint(REMEDIES)


@pytest.mark.parametrize("name", REMEDIES)
def test_a_property_of_librdkafka_alone_is_answered_with_one_sentence(name: str) -> None:
    for kind in (AdminConfig, ConsumerConfig, ProducerConfig):
        with pytest.raises(InvalidConfig) as failure:
            kind.of({name: 1}, None, {})
        message = str(failure.value)
        assert message.startswith(f"Ottla does not have the librdkafka property {name}: ")
        assert message.endswith(".")
        assert ". " not in message


def test_a_property_of_librdkafka_in_a_profile_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        config(None, {"error_cb": print})
    assert "Ottla does not have the librdkafka property error_cb" in caplog.text


@pytest.mark.parametrize(
    "imported", ["ottla.client.consumer.config.ConsumerConfig", "ottla.client.admin.AdminConfig"]
)
def test_a_shared_profile_does_not_depend_on_what_is_imported(imported: str) -> None:
    module, _, name = imported.rpartition(".")
    program = (
        f"from {module} import {name}\n"
        f"{name}.of(None, {{'linger.ms': '5', 'group.id': 'g', 'sasl.mechanism': 'PLAIN'}}, {{}})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
