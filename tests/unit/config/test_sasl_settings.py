"""Tests of the SASL properties: overrides, credentials, and what is refused."""

from __future__ import annotations

import logging

import pytest

from ottla.base.config.broker import BrokerConfig
from ottla.base.config.describe import describe_broker
from ottla.base.errors import ErrorCode, KafkaError, UserError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
LISTENERS = {
    "listeners": "INTERNAL://a:1,EXTERNAL://b:2,OPEN://c:3",
    "listener.security.protocol.map": "INTERNAL:SASL_PLAINTEXT,EXTERNAL:SASL_SSL,OPEN:PLAINTEXT",
    "inter.broker.listener.name": "internal",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "connections.max.reauth.ms": "1000",
    "listener.name.external.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.external.connections.max.reauth.ms": "2000",
    "listener.name.external.scram-sha-256.connections.max.reauth.ms": "3000",
    "listener.name.external.sasl.server.max.receive.size": "9999",
    "listener.name.external.plain.sasl.jaas.config": f'{PLAIN} required user_a="secret";',
}


def config() -> BrokerConfig:
    return BrokerConfig.from_properties(LISTENERS)


def test_listeners_and_mechanisms_override_the_settings_of_all() -> None:
    found = config()
    assert found.notices() == []
    assert found.sasl_settings.keys() == {"INTERNAL", "EXTERNAL"}
    internal, external = (found.sasl_settings[name] for name in ("INTERNAL", "EXTERNAL"))
    assert [(each.name, each.max_reauth_ms) for each in internal.mechanisms] == [
        ("SCRAM-SHA-512", 1_000)
    ]
    assert [(each.name, each.max_reauth_ms) for each in external.mechanisms] == [
        ("PLAIN", 2_000),
        ("SCRAM-SHA-256", 3_000),
    ]
    assert (internal.max_receive_bytes, external.max_receive_bytes) == (524_288, 9_999)
    jaas = external.mechanisms[0].jaas
    assert jaas is not None
    assert jaas.users == {"a": "secret"}
    assert "secret" not in f"{found!r}{external!r}"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sasl__enabled__mechanisms": None}, "must not have GSSAPI, because Ottla does not"),
        ({"sasl__enabled__mechanisms": "GSSAPI,PLAIN"}, "must not have GSSAPI"),
        ({"sasl__enabled__mechanisms": "OTHER"}, "must not have OTHER; the listener INTERNAL can"),
        ({"sasl__enabled__mechanisms": ""}, "must have a mechanism for the listener INTERNAL"),
        (
            {"listener__name__external__sasl__enabled__mechanisms": "GSSAPI"},
            "listener.name.external.sasl.enabled.mechanisms: the value must not have GSSAPI",
        ),
        (
            {"listener__name__external__plain__sasl__jaas__config": None},
            "does not read the file in java.security.auth.login.config",
        ),
        (
            {"listener__name__external__plain__sasl__jaas__config": f"{PLAIN} required secret"},
            "Invalid value [hidden] for configuration listener.name.external.plain.sasl.jaas.config"
            ": the value must have options of the form",
        ),
        (
            {"listener__name__external__plain__sasl__jaas__config": f"{SCRAM} required;"},
            f"must use the login module {PLAIN}",
        ),
        ({"principal__builder__class": "com.Mine"}, "principal builders are Java code"),
        ({"sasl__server__callback__handler__class": "com.Mine"}, "callback handlers are Java code"),
        ({"sasl__server__max__receive__size": "0"}, "must be at least 1"),
        (
            {"zookeeper__connect": "z:2181"},
            "sasl.mechanism.inter.broker.protocol: the value must be one of the mechanisms",
        ),
        (
            {
                "zookeeper__connect": "z:2181",
                "sasl__mechanism__inter__broker__protocol": "SCRAM-SHA-512",
            },
            "listener.name.internal.scram-sha-512.sasl.jaas.config: the value must have username",
        ),
    ],
)
def test_what_cannot_work_is_refused_in_a_sentence(
    changes: dict[str, str | None], words: str
) -> None:
    properties = {
        **LISTENERS,
        **{name.replace("__", "."): value for name, value in changes.items() if value is not None},
    }
    for name, value in changes.items():
        if value is None:
            del properties[name.replace("__", ".")]
    with pytest.raises(UserError) as caught:
        BrokerConfig.from_properties(properties)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


def test_kafkas_default_mechanism_does_not_matter_without_a_sasl_listener() -> None:
    found = BrokerConfig.from_properties({"listeners": "PLAINTEXT://a:1"})
    assert found.sasl_settings == {}
    assert found.sasl_enabled_mechanisms == ["GSSAPI"]


def test_kafkas_own_classes_are_accepted() -> None:
    properties = {
        **LISTENERS,
        "listener.name.external.scram-sha-256.sasl.server.callback.handler.class": VALIDATOR,
        "principal.builder.class": (
            "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
        ),
    }
    assert BrokerConfig.from_properties(properties).notices() == []


@pytest.mark.parametrize("name", ["sasl.jaas.config", "listener.name.external.sasl.jaas.config"])
def test_credentials_without_a_listener_and_a_mechanism_have_no_effect(name: str) -> None:
    (notice,) = BrokerConfig.from_properties({**LISTENERS, name: "secret"}).notices()
    assert notice.level == logging.WARNING
    assert notice.text == (
        f"{name} has no effect: brokers read listener.name.<listener>.<mechanism>.sasl.jaas.config."
    )


def test_the_brokers_of_a_cluster_have_credentials_for_each_other() -> None:
    found = BrokerConfig.from_properties(
        {
            **LISTENERS,
            "zookeeper.connect": "z:2181",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.name.internal.scram-sha-512.sasl.jaas.config": (
                f'{SCRAM} required username="broker" password="p";'
            ),
        }
    )
    login = found.sasl_settings["INTERNAL"].inter_broker_login()
    assert login is not None
    assert (login.username, login.password) == ("broker", "p")


def test_a_sasl_listener_asks_for_certificates_only_if_its_own_property_says_so() -> None:
    """As in Kafka (KIP-684)."""
    general = {**LISTENERS, "ssl.client.auth": "required"}
    found = BrokerConfig.from_properties(general)
    assert found.tls_settings["EXTERNAL"].client_auth == "none"
    (notice,) = found.notices()
    assert "SASL_SSL listeners read listener.name.<listener>.ssl.client.auth" in notice.text
    own = {**LISTENERS, "listener.name.external.ssl.client.auth": "required"}
    assert BrokerConfig.from_properties(own).tls_settings["EXTERNAL"].client_auth == "required"


def test_users_can_change_while_the_broker_runs() -> None:
    name = "listener.name.external.plain.sasl.jaas.config"
    changed = config().with_dynamic({}, {name: f'{PLAIN} required user_b="other";'})
    jaas = changed.sasl_settings["EXTERNAL"].mechanisms[0].jaas
    assert jaas is not None
    assert jaas.users == {"b": "other"}
    with pytest.raises(KafkaError) as caught:
        config().with_dynamic({}, {name: "nonsense"})
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_credentials_are_described_without_their_values() -> None:
    entries = {each.name: each for each in describe_broker(config(), {}, {})}
    jaas = entries["listener.name.external.plain.sasl.jaas.config"]
    assert (jaas.value, jaas.is_sensitive, jaas.read_only) == (None, True, False)
    assert entries["sasl.enabled.mechanisms"].value == "SCRAM-SHA-512"
    assert entries["principal.builder.class"].is_default
    reauth = entries["listener.name.external.scram-sha-256.connections.max.reauth.ms"]
    assert (reauth.value, reauth.read_only) == ("3000", True)
