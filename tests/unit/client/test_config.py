"""How a client's properties are given."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import UserError
from ottla.client.admin.config import AdminConfig
from ottla.client.config import CommonConfig, parse_server, table_of
from ottla.client.consumer.config import ConsumerConfig
from ottla.client.errors import InvalidConfig
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
    with pytest.raises(InvalidConfig, match=r"retry\.backof\.ms; did you mean retry\.backoff\.ms"):
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
        {"ssl_truststore_type": "JKS"},
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
    with pytest.raises(InvalidConfig, match="must look like host:port"):
        parse_server(text)


def test_the_hosts_name_is_not_checked_if_the_algorithm_is_empty() -> None:
    assert (
        config(ssl_endpoint_identification_algorithm="").ssl_endpoint_identification_algorithm == ""
    )
