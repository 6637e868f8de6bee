"""Settings of OAUTHBEARER: overrides, and what a listener must not leave open."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.config.broker_oauthbearer_table import OAUTHBEARER_KEYS
from ottla.base.config.definition import ConfigError
from ottla.base.config.oauthbearer_settings import OAuthBearerSettings, listener_oauthbearer

PREFIX = "listener.name.external.oauthbearer.sasl."
SAFE = {
    "sasl.oauthbearer.jwks.endpoint.url": "https://idp/keys",
    "sasl.oauthbearer.expected.issuer": "https://idp",
    "sasl.oauthbearer.expected.audience": ["kafka"],
}


def settings(
    changes: dict[str, Any], overrides: dict[str, Any] | None = None, **jaas: str
) -> OAuthBearerSettings:
    values = {key.name: key.default for key in OAUTHBEARER_KEYS} | SAFE | changes
    options = {name.replace("_", "."): value for name, value in jaas.items()}
    return listener_oauthbearer("EXTERNAL", values, overrides or {}, options)


def test_the_most_specific_property_applies() -> None:
    name = "sasl.oauthbearer.clock.skew.seconds"
    assert settings({}).clock_skew_seconds == 30
    assert settings({name: 5}).clock_skew_seconds == 5
    assert settings({name: 5}, {name: 6}).clock_skew_seconds == 6
    assert settings({name: 5}, {name: 6, f"oauthbearer.{name}": 7}).clock_skew_seconds == 7


@pytest.mark.parametrize(
    ("property_name", "value", "expected"),
    [
        ("jwks.endpoint.url", None, "jwks.endpoint.url: the value must be the JWKS URL"),
        ("expected.issuer", None, "allow.unverified.issuer=true"),
        ("expected.issuer", "", "allow.unverified.issuer=true"),
        ("expected.audience", [], "allow.unverified.audience=true"),
        ("jwks.endpoint.url", "ftp://idp/keys", "must be a URL with https, http or file"),
        ("jwks.endpoint.url", "idp/keys", "must be a URL with https, http or file"),
        ("jwks.endpoint.url", "https://", "must be a URL with https, http or file"),
        ("jwks.endpoint.url", "https://idp:99999/", "must be a URL with https, http or file"),
        ("jwks.endpoint.url", "https://[/", "must be a URL with https, http or file"),
        ("jwks.endpoint.url", "file://host/keys", "must be a URL with https, http or file"),
        ("sub.claim.name", "", "sub.claim.name: the value must not be empty"),
    ],
)
def test_an_incomplete_or_unsafe_listener_is_refused(
    property_name: str, value: object, expected: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        settings({f"sasl.oauthbearer.{property_name}": value})
    assert f"{PREFIX}oauthbearer.{property_name}" in str(raised.value)
    assert expected in str(raised.value)


def test_every_issuer_and_audience_can_be_allowed_explicitly() -> None:
    found = settings(
        {
            "sasl.oauthbearer.expected.issuer": None,
            "sasl.oauthbearer.allow.unverified.issuer": True,
            "sasl.oauthbearer.expected.audience": [],
            "sasl.oauthbearer.allow.unverified.audience": True,
        }
    )
    assert found.expected_issuer is None
    assert found.expected_audience == ()


def test_a_password_in_the_url_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match="must not have a user name or a password") as raised:
        settings({"sasl.oauthbearer.jwks.endpoint.url": "https://me:secret@idp/keys"})
    assert "secret" not in str(raised.value)


def test_a_file_url_names_its_path() -> None:
    found = settings({"sasl.oauthbearer.jwks.endpoint.url": "file:///etc/my%20keys.json"})
    assert found.jwks_file == "/etc/my keys.json"
    assert settings({}).jwks_file is None


def test_options_of_the_login_module_configure_tls() -> None:
    found = settings({}, ssl_truststore_location="/ca.pem", ssl_truststore_type="PEM").tls
    assert (found.truststore_location, found.truststore_type) == ("/ca.pem", "PEM")
    assert hash(settings({}, ssl_truststore_location="/ca.pem")) != hash(settings({}))
    with pytest.raises(ConfigError, match=r"unknown option ssl\.names"):
        settings({}, ssl_names="x")
    with pytest.raises(ConfigError, match=r"unknown option ssl\.nonsense"):
        settings({}, ssl_nonsense="x")


def test_only_the_built_in_validation_can_be_chosen() -> None:
    (key,) = [each for each in OAUTHBEARER_KEYS if each.name.endswith("validator.class")]
    package = "org.apache.kafka.common.security.oauthbearer"
    assert key.parse(f"{package}.BrokerJwtValidator") == f"{package}.BrokerJwtValidator"
    with pytest.raises(ConfigError):
        key.parse("com.example.Validator")


def test_listeners_with_equal_settings_are_one_member_of_a_set() -> None:
    """The broker keeps one set of keys for all listeners with the same settings."""
    trusting = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem"}
    one, same = settings({}, **trusting), settings({}, **trusting)
    other = settings({}, **trusting | {"ssl.truststore.location": "/other.pem"})
    assert {one, same, other} == {one, other}
