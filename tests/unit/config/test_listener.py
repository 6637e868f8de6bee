"""Tests of parsing `listeners` and `advertised.listeners`."""

from __future__ import annotations

import socket

import pytest

from ottla.base.config.broker import BrokerConfig, Listener, _canonical_host_name
from ottla.base.config.listener import SecurityProtocol
from ottla.base.errors import UserError


def listeners(text: str, **others: str) -> BrokerConfig:
    properties = {name.replace("__", "."): value for name, value in others.items()}
    return BrokerConfig.from_properties({"listeners": text, **properties})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PLAINTEXT://localhost:9092", Listener("PLAINTEXT", "localhost", 9092)),
        ("plaintext://127.0.0.1:0", Listener("PLAINTEXT", "127.0.0.1", 0)),
        ("PLAINTEXT://[::1]:9092", Listener("PLAINTEXT", "::1", 9092)),
        ("PLAINTEXT://:9092", Listener("PLAINTEXT", "", 9092)),
    ],
)
def test_a_listener_is_a_name_a_host_and_a_port(text: str, expected: Listener) -> None:
    assert listeners(text).listeners == [expected]


def test_a_listener_is_written_as_it_is_read() -> None:
    assert str(Listener("PLAINTEXT", "::1", 9092)) == "PLAINTEXT://[::1]:9092"
    assert str(Listener("PLAINTEXT", "a", 1)) == "PLAINTEXT://a:1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("localhost:9092", "NAME://host:port"),
        ("PLAINTEXT://localhost", "NAME://host:port"),
        ("PLAINTEXT://localhost:65536", "up to 65535"),
        ("PLAINTEXT://a b:1", "NAME://host:port"),
        ("", "must not be empty"),
        ("PLAINTEXT://a:1,PLAINTEXT://b:2", "a unique name"),
        ("SASL_SSL://a:1", "must not have GSSAPI, because Ottla does not support Kerberos"),
        ("INTERNAL://a:1", "must name a security protocol for the listener INTERNAL"),
    ],
)
def test_a_listener_that_cannot_work_is_refused_in_a_sentence(text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        listeners(text)
    assert words in str(caught.value)


MAP = "A:PLAINTEXT,B:PLAINTEXT,C:SASL_PLAINTEXT"


def test_listeners_with_other_names_need_the_protocol_map() -> None:
    config = listeners("A://x:1,B://y:2", listener__security__protocol__map=MAP)
    assert [listener.name for listener in config.listeners] == ["A", "B"]
    found = listeners(
        "A://x:1,C://y:2",
        listener__security__protocol__map=MAP,
        sasl__enabled__mechanisms="SCRAM-SHA-512",
    )
    assert found.listener_protocols["C"] is SecurityProtocol.SASL_PLAINTEXT


def test_two_listeners_share_a_port_only_as_ipv4_and_ipv6() -> None:
    listeners("A://127.0.0.1:1,B://[::1]:1", listener__security__protocol__map=MAP)
    listeners("A://x:0,B://x:0", listener__security__protocol__map=MAP)
    for text in ("A://x:1,B://y:1", "A://127.0.0.1:1,B://127.0.0.2:1", "A://:1,B://[::1]:1"):
        with pytest.raises(UserError, match="same port for two listeners"):
            listeners(text, listener__security__protocol__map=MAP)


def test_advertised_listeners_are_the_listeners_if_not_set() -> None:
    assert listeners("PLAINTEXT://h:1").advertised_listeners == [Listener("PLAINTEXT", "h", 1)]


@pytest.mark.parametrize(
    ("canonical", "expected"),
    [("broker1.example.com", "broker1.example.com"), ("localhost.localdomain", "broker1")],
)
def test_an_empty_host_is_advertised_with_this_machines_canonical_name(
    monkeypatch: pytest.MonkeyPatch, canonical: str, expected: str
) -> None:
    monkeypatch.setattr(socket, "getfqdn", lambda: canonical)
    monkeypatch.setattr(socket, "gethostname", lambda: "broker1")
    _canonical_host_name.cache_clear()
    try:
        config = listeners("PLAINTEXT://:1")
    finally:
        _canonical_host_name.cache_clear()
    assert config.advertised_listeners == [Listener("PLAINTEXT", expected, 1)]


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "[0:0:0:0:0:0:0:0]"])
def test_clients_are_never_sent_to_an_address_that_means_any(host: str) -> None:
    with pytest.raises(UserError, match=r"set advertised\.listeners"):
        listeners(f"PLAINTEXT://{host}:9092")
    config = listeners("PLAINTEXT://0.0.0.0:9092", advertised__listeners="PLAINTEXT://h:9092")
    assert config.advertised_listeners == [Listener("PLAINTEXT", "h", 9092)]


def test_an_advertised_name_must_be_a_listeners_name() -> None:
    with pytest.raises(UserError, match=r"must use the names in listeners \(PLAINTEXT\)"):
        listeners("PLAINTEXT://h:1", advertised__listeners="OTHER://h:1")


def test_a_controller_alone_is_no_broker() -> None:
    with pytest.raises(UserError, match="a listener for clients"):
        listeners("CONTROLLER://:9093", controller__listener__names="CONTROLLER")
