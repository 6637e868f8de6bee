"""How a broker logs in to other brokers."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.config.broker import BrokerConfig
from ottla.base.config.broker_sasl_table import LOGIN_MECHANISMS
from ottla.base.config.sasl_settings import SaslSettings
from ottla.base.errors import UserError
from ottla.base.jaas import PLAIN_MODULE, SCRAM_MODULE
from ottla.broker.peer_login import LOGINS, PeerLogin
from ottla.core.security.principal import Principal

LOGIN = 'username="kafka" password="secret of the brokers"'


def config(mechanism: str, options: str = LOGIN, **more: str) -> BrokerConfig:
    module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
    key = f"listener.name.internal.{mechanism.lower()}.sasl.jaas.config"
    return BrokerConfig.from_properties(
        {
            "listeners": "INTERNAL://127.0.0.1:9094,PLAINTEXT://127.0.0.1:9092",
            "listener.security.protocol.map": "INTERNAL:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "sasl.enabled.mechanisms": mechanism,
            "sasl.mechanism.inter.broker.protocol": mechanism,
            "zookeeper.connect": "127.0.0.1:2181",
            key: f"{module} required {options};",
            **{name.replace("__", "."): value for name, value in more.items()},
        }
    )


def settings(mechanism: str, options: str = LOGIN) -> SaslSettings:
    return config(mechanism, options).sasl_settings["INTERNAL"]


def test_every_mechanism_that_brokers_may_use_has_a_login() -> None:
    assert set(LOGINS) == set(LOGIN_MECHANISMS)


@pytest.mark.parametrize("mechanism", LOGINS)
def test_the_user_of_the_login_module_is_the_principal(mechanism: str) -> None:
    login = PeerLogin()
    login.use_settings(settings(mechanism))
    assert login.principal == Principal("User", "kafka")
    assert login.authenticate is not None


def test_the_login_is_kept_while_the_settings_are_equal() -> None:
    login = PeerLogin()
    login.use_settings(settings("SCRAM-SHA-256"))
    first: Any = login.authenticate
    login.use_settings(settings("SCRAM-SHA-256"))
    assert login.authenticate is first
    login.use_settings(settings("SCRAM-SHA-256", 'username="other" password="x"'))
    assert login.authenticate is not first
    assert login.principal == Principal("User", "other")


def test_a_listener_without_sasl_has_no_login() -> None:
    login = PeerLogin()
    login.use_settings(settings("PLAIN"))
    login.use_settings(None)
    assert (login.authenticate, login.principal) == (None, None)


@pytest.mark.parametrize(
    "options", ["", 'username="kafka"', 'password="x"', 'username="" password="x"']
)
def test_a_broker_of_a_cluster_needs_a_login(options: str) -> None:
    with pytest.raises(UserError, match="with which the brokers log in to each other") as caught:
        config("PLAIN", f'{options} user_a="secret of alice"')
    assert "listener.name.internal.plain.sasl.jaas.config" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_brokers_use_a_mechanism_that_their_listener_accepts() -> None:
    with pytest.raises(UserError, match="accepts \\(PLAIN\\)") as caught:
        config("PLAIN", sasl__mechanism__inter__broker__protocol="SCRAM-SHA-256")
    assert "sasl.mechanism.inter.broker.protocol" in str(caught.value)


def test_brokers_do_not_log_in_with_tokens() -> None:
    more = {
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": "https://127.0.0.1/keys",
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "https://127.0.0.1",
    }
    with pytest.raises(UserError, match="with which brokers can log in"):
        config("PLAIN", **{name.replace(".", "__"): value for name, value in more.items()})


def test_a_standalone_broker_needs_no_login() -> None:
    login = PeerLogin()
    alone = config("PLAIN", 'user_a="b"', zookeeper__connect="")
    login.use_settings(alone.sasl_settings["INTERNAL"])
    assert (login.authenticate, login.principal) == (None, None)
