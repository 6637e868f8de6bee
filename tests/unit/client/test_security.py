"""Credentials of clients: by our names and in Java's notation."""

from __future__ import annotations

import pytest

from ottla.client.config import CommonConfig
from ottla.client.errors import InvalidConfig
from ottla.client.security import authenticator, credentials
from ottla.client.tls import tls_settings


def of_jaas(text: str) -> tuple[str, str]:
    keywords = {"security_protocol": "SASL_SSL", "sasl_jaas_config": text}
    return credentials(CommonConfig.of(None, None, keywords))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('m.PlainLoginModule required username="alice" password="secret";', ("alice", "secret")),
        ("m.PlainLoginModule required\n username='a b'\n password='c;d';", ("a b", "c;d")),
        ("m.ScramLoginModule required username=alice password=secret;", ("alice", "secret")),
        (r'm required username="a" password="quo\"te\\";', ("a", 'quo"te\\')),
        ('m required user="x" username = "a" password="p=q";', ("a", "p=q")),
    ],
)
def test_javas_way_to_write_a_password(text: str, found: tuple[str, str]) -> None:
    assert of_jaas(text) == found


def test_names_of_our_own_win_over_jaas() -> None:
    keywords = {
        "security_protocol": "SASL_SSL",
        "sasl_username": "me",
        "sasl_password": "mine",
        "sasl_jaas_config": 'm required username="other" password="theirs";',
    }
    assert credentials(CommonConfig.of(None, None, keywords)) == ("me", "mine")


def test_a_user_is_needed() -> None:
    with pytest.raises(InvalidConfig, match=r"sasl\.username and sasl\.password must be set"):
        of_jaas("m required;")


def test_plaintext_needs_neither_tls_nor_sasl() -> None:
    plain = CommonConfig.of(None, None, {})
    assert tls_settings(plain) is None
    assert authenticator(plain) is None
