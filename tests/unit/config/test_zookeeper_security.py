"""Properties for secure connections to ZooKeeper."""

from __future__ import annotations

import logging

import pytest

from ottla.base.config.broker import BrokerConfig
from ottla.base.config.zookeeper_security import DIGEST, SASL, parse_zookeeper_security
from ottla.base.errors import UserError

NETTY = "org.apache.zookeeper.ClientCnxnSocketNetty"
USER = {"zookeeper.auth.user": "broker", "zookeeper.auth.password": "hunter2"}


def test_without_properties_connections_are_plain_and_nodes_are_open() -> None:
    security = BrokerConfig().zookeeper_security
    assert (security.tls, security.credentials, security.set_acl) == (None, None, False)


def test_the_properties_of_kafka() -> None:
    config = BrokerConfig.from_properties(
        {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": NETTY,
            "zookeeper.ssl.keystore.location": "/key.p12",
            "zookeeper.ssl.keystore.type": "PKCS12",
            "zookeeper.ssl.keystore.password": "one",
            "zookeeper.ssl.truststore.location": "/trust.p12",
            "zookeeper.ssl.truststore.password": "two",
            "zookeeper.ssl.protocol": "TLSv1.2",
            "zookeeper.ssl.enabled.protocols": "TLSv1.2",
            "zookeeper.ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "zookeeper.ssl.endpoint.identification.algorithm": "",
            "zookeeper.ssl.crl.enable": "false",
            "zookeeper.set.acl": "true",
        }
    )
    tls = config.zookeeper_security.tls
    assert tls is not None
    assert tls.files == ("/key.p12", "/trust.p12")
    assert (tls.keystore_password, tls.key_password, tls.truststore_password) == (
        "one", "one", "two",
    )  # fmt: skip
    assert (tls.protocol, tls.enabled_protocols) == ("TLSv1.2", ("TLSv1.2",))
    assert not tls.endpoint_identification_algorithm
    assert tls.name_of("keystore.location") == "zookeeper.ssl.keystore.location"
    assert config.zookeeper_security.set_acl


@pytest.mark.parametrize(
    ("scheme", "expected"), [({}, SASL), ({"zookeeper.auth.scheme": "digest"}, DIGEST)]
)
def test_credentials(scheme: dict[str, str], expected: str) -> None:
    credentials = parse_zookeeper_security({**USER, **scheme}).credentials
    assert credentials is not None
    assert (credentials.user, credentials.password) == ("broker", "hunter2")
    assert credentials.scheme == expected


def test_passwords_are_not_shown() -> None:
    stores = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.password": "hunter2",
        "zookeeper.ssl.truststore.password": "hunter2",
    }
    config = BrokerConfig.from_properties({**USER, **stores})
    assert "hunter2" not in repr(config)
    assert "hunter2" not in repr(config.zookeeper_security)


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ({"zookeeper.set.acl": "true"}, "requires that ZooKeeper knows the broker"),
        (
            {"zookeeper.set.acl": "true", "zookeeper.ssl.keystore.location": "/key.pem"},
            "requires that ZooKeeper knows the broker",
        ),
        ({"zookeeper.auth.user": "a"}, "must be set with zookeeper.auth.user"),
        ({"zookeeper.auth.password": "hunter2"}, "must be set with zookeeper.auth.password"),
        ({**USER, "zookeeper.auth.scheme": "kerberos"}, "must be one of sasl, digest"),
        (
            {**USER, "zookeeper.auth.user": "a:b", "zookeeper.auth.scheme": "digest"},
            "must not contain a colon",
        ),
        ({"zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNIO"}, NETTY),
        ({"zookeeper.ssl.crl.enable": "true"}, "not checked for revocation"),
        ({"zookeeper.ssl.ocsp.enable": "true"}, "not checked for revocation"),
        ({"zookeeper.ssl.endpoint.identification.algorithm": "ldap"}, "must be one of https"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(
    properties: dict[str, str], sentence: str
) -> None:
    with pytest.raises(UserError) as caught:
        BrokerConfig.from_properties(properties)
    assert sentence in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_tls_properties_without_tls_are_reported() -> None:
    config = BrokerConfig.from_properties({"zookeeper.ssl.keystore.location": "/key.pem"})
    assert [(each.level, each.text) for each in config.notices()] == [
        (
            logging.WARNING,
            "zookeeper.ssl.keystore.location has no effect: "
            "zookeeper.ssl.client.enable is not true.",
        )
    ]


def test_a_password_in_plain_text_is_reported() -> None:
    digest = {**USER, "zookeeper.auth.scheme": "digest"}
    (notice,) = BrokerConfig.from_properties(digest).notices()
    assert "sends the password in plain text" in notice.text
    secured = {**digest, "zookeeper.ssl.client.enable": "true"}
    assert not BrokerConfig.from_properties(secured).notices()
    assert not BrokerConfig.from_properties(USER).notices()
