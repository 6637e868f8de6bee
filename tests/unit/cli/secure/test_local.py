"""Tests of the certificates of `ottla cluster up --secure`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ottla.base.config.properties import load_properties
from ottla.cli.secure import local
from ottla.cli.secure.certificates import facts
from ottla.cli.secure.local import LocalSecurity
from ottla.cli.secure.renew import renew


@pytest.fixture(autouse=True)
def no_zookeeper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "put_users", lambda properties, logins, *, replaces: None)


def made(data: Path, host: str = "127.0.0.1", *ports: int) -> LocalSecurity:
    security = LocalSecurity(data, host, ports or (9092, 9093))
    security.prepare()
    security.finish("127.0.0.1:2181/ottla")
    return security


def test_a_second_start_keeps_certificates_and_passwords(tmp_path: Path) -> None:
    made(tmp_path)
    before = {each: each.read_bytes() for each in (tmp_path / "secure").iterdir()}
    made(tmp_path)
    assert {each: each.read_bytes() for each in (tmp_path / "secure").iterdir()} == before


def test_a_start_renews_certificates_that_expire_soon(tmp_path: Path) -> None:
    security = made(tmp_path)
    renew(security.directory, now=datetime.now(UTC) - timedelta(days=70))
    made(tmp_path)
    soon = datetime.now(UTC) + timedelta(days=80)
    for each in security.directory.keystores():
        assert facts(each.read_bytes()).expires_at > soon


def test_a_start_on_another_address_renews_certificates_and_corrects_the_profile(
    tmp_path: Path,
) -> None:
    made(tmp_path)
    security = made(tmp_path, "192.0.2.7", 19092, 19093)
    for each in security.directory.keystores():
        assert "192.0.2.7" in facts(each.read_bytes()).names
    bootstrap = "192.0.2.7:19092,192.0.2.7:19093"
    assert load_properties(str(security.profile))["bootstrap.servers"] == bootstrap
    conf = security.directory.admin_librdkafka.read_text()
    assert conf.startswith(f"bootstrap.servers={bootstrap}\n")


def test_brokers_get_the_addresses_of_this_start(tmp_path: Path) -> None:
    made(tmp_path)
    security = made(tmp_path, "192.0.2.7", 19092, 19093)
    found = security.properties(2, "0.0.0.0")
    assert found["listeners"] == "SASL_SSL://0.0.0.0:19093"
    assert found["advertised.listeners"] == "SASL_SSL://192.0.2.7:19093"
    assert found["log.dirs"] == str(tmp_path / "broker-2")
    assert found["zookeeper.ssl.client.enable"] == "true"
