"""Broker properties for secure connections to ZooKeeper, with the names of Apache Kafka 3.9.

Kafka takes the credentials from the section `Client` of a JAAS file. Here they are the properties
`zookeeper.auth.scheme`, `zookeeper.auth.user` and `zookeeper.auth.password`.
"""

from __future__ import annotations

from ottla.base.config.aliases import BOOLEAN, LIST, LOW, MEDIUM, PASSWORD, STRING
from ottla.base.config.definition import ConfigKey
from ottla.base.config.validator import OneOf, one_of

NETTY = "org.apache.zookeeper.ClientCnxnSocketNetty"
_STORE_TYPES = ("JKS", "PKCS12", "PEM")

ZOOKEEPER_TLS_KEYS = [
    ConfigKey(
        "zookeeper.ssl.client.enable",
        BOOLEAN,
        False,
        "Whether to connect to ZooKeeper with TLS, at the port that is its secureClientPort.",
        None,
        MEDIUM,
    ),
    ConfigKey(
        "zookeeper.clientCnxnSocket",
        STRING,
        None,
        "Only Netty's class is accepted, because Java programs need it for TLS. No effect: the "
        "ZooKeeper client of this broker is not a Java program.",
        one_of(NETTY),
        MEDIUM,
    ),
    ConfigKey(
        "zookeeper.ssl.keystore.location",
        STRING,
        None,
        "File with the private key and the certificate chain that the broker presents to "
        "ZooKeeper. It is loaded again for each new connection if it has changed.",
        None,
        MEDIUM,
    ),
    ConfigKey(
        "zookeeper.ssl.keystore.type",
        STRING,
        None,
        "Format of the key store: PEM or PKCS12. If not set, the format is recognized by the "
        "content. Files in the JKS format must be converted.",
        one_of(*_STORE_TYPES),
        MEDIUM,
    ),
    ConfigKey(
        "zookeeper.ssl.keystore.password",
        PASSWORD,
        None,
        "Password of the key store and of its private key.",
        None,
        MEDIUM,
    ),
    ConfigKey(
        "zookeeper.ssl.truststore.location",
        STRING,
        None,
        "File with the certificates of the authorities that sign ZooKeeper's certificates. It is "
        "loaded again for each new connection if it has changed. If not set, the authorities of "
        "the operating system are trusted.",
        None,
        MEDIUM,
    ),
    ConfigKey(
        "zookeeper.ssl.truststore.type",
        STRING,
        None,
        "Format of the trust store, as for zookeeper.ssl.keystore.type.",
        one_of(*_STORE_TYPES),
        MEDIUM,
    ),
    ConfigKey(
        "zookeeper.ssl.truststore.password",
        PASSWORD,
        None,
        "Password of a PKCS12 trust store.",
        None,
        MEDIUM,
    ),
    ConfigKey(
        "zookeeper.ssl.endpoint.identification.algorithm",
        STRING,
        "HTTPS",
        "Check of the host name in ZooKeeper's certificate: https, or empty for no check.",
        OneOf(("https", ""), ignore_case=True),
        LOW,
    ),
    ConfigKey(
        "zookeeper.ssl.protocol",
        STRING,
        "TLSv1.3",
        "Newest version of TLS for connections to ZooKeeper: TLSv1.2 or TLSv1.3.",
        one_of("TLSv1.2", "TLSv1.3", "TLS"),
        LOW,
    ),
    ConfigKey(
        "zookeeper.ssl.enabled.protocols",
        LIST,
        ["TLSv1.2", "TLSv1.3"],
        "Versions of TLS for connections to ZooKeeper, as a comma-separated list.",
        None,
        LOW,
    ),
    ConfigKey(
        "zookeeper.ssl.cipher.suites",
        LIST,
        [],
        "Cipher suites for connections to ZooKeeper, by their IANA names. If not set, OpenSSL's "
        "defaults apply. All cipher suites of TLS 1.3 are always offered together.",
        None,
        LOW,
    ),
]

ZOOKEEPER_SECURITY_KEYS = [
    *ZOOKEEPER_TLS_KEYS,
    ConfigKey(
        "zookeeper.set.acl",
        BOOLEAN,
        False,
        "Whether brokers create nodes in ZooKeeper that only they can access. All brokers of a "
        "cluster need the same user or the same distinguished name in their certificates.",
        None,
        MEDIUM,
    ),
    ConfigKey(
        "zookeeper.auth.scheme",
        STRING,
        "sasl",
        "Scheme of authentication with a password: sasl for SASL DIGEST-MD5, as Kafka's "
        "DigestLoginModule uses, or digest for ZooKeeper's scheme of that name, which sends the "
        "password itself. Specific to Ottla.",
        one_of("sasl", "digest"),
        MEDIUM,
    ),
    ConfigKey(
        "zookeeper.auth.user",
        STRING,
        None,
        "Name of the broker's user in ZooKeeper. Specific to Ottla.",
        None,
        MEDIUM,
    ),
    ConfigKey(
        "zookeeper.auth.password",
        PASSWORD,
        None,
        "Password of zookeeper.auth.user. Specific to Ottla.",
        None,
        MEDIUM,
    ),
]
