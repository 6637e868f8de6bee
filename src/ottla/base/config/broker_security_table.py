"""Broker properties for TLS.

Each of them can be overridden for one listener, as `listener.name.<name>.<property>` with the name
of the listener in lower case.
"""

from __future__ import annotations

from ottla.base.config.aliases import BOOLEAN, LIST, LOW, MEDIUM, PASSWORD, PER_BROKER, STRING
from ottla.base.config.definition import ConfigKey
from ottla.base.config.validator import one_of

_STORE_TYPES = ("JKS", "PKCS12", "PEM")

SSL_KEYS = [
    ConfigKey(
        "ssl.protocol",
        STRING,
        "TLSv1.3",
        "Newest version of TLS: TLSv1.2 or TLSv1.3.",
        one_of("TLSv1.2", "TLSv1.3", "TLS"),
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "ssl.enabled.protocols",
        LIST,
        ["TLSv1.2", "TLSv1.3"],
        "Versions of TLS that are accepted, as a comma-separated list.",
        None,
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "ssl.cipher.suites",
        LIST,
        [],
        "Cipher suites that are accepted, by their IANA names. If not set, OpenSSL's defaults "
        "apply. All cipher suites of TLS 1.3 are always accepted together.",
        None,
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "ssl.keystore.type",
        STRING,
        "JKS",
        "Format of the key store: PEM or PKCS12. JKS, the default of Kafka, means that the format "
        "is recognized by the content; files in the JKS format itself must be converted.",
        one_of(*_STORE_TYPES),
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "ssl.keystore.location",
        STRING,
        None,
        "File with the private key and the certificate chain. The broker loads it again when it "
        "changes.",
        None,
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "ssl.keystore.password",
        PASSWORD,
        None,
        "Password of a PKCS12 key store.",
        None,
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "ssl.key.password",
        PASSWORD,
        None,
        "Password of the private key, if it is encrypted.",
        None,
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "ssl.keystore.key",
        PASSWORD,
        None,
        "Private key in PEM format, instead of a key store file.",
        None,
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "ssl.keystore.certificate.chain",
        PASSWORD,
        None,
        "Certificate chain in PEM format, together with ssl.keystore.key.",
        None,
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "ssl.truststore.type",
        STRING,
        "JKS",
        "Format of the trust store, as for ssl.keystore.type.",
        one_of(*_STORE_TYPES),
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "ssl.truststore.location",
        STRING,
        None,
        "File with the certificates of trusted authorities. The broker loads it again when it "
        "changes. If not set, the authorities of the operating system are trusted.",
        None,
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "ssl.truststore.password",
        PASSWORD,
        None,
        "Password of a PKCS12 trust store.",
        None,
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "ssl.truststore.certificates",
        PASSWORD,
        None,
        "Certificates of trusted authorities in PEM format, instead of a trust store file.",
        None,
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "ssl.client.auth",
        STRING,
        "none",
        "Whether clients must present a certificate: required, requested or none.",
        one_of("required", "requested", "none"),
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "ssl.endpoint.identification.algorithm",
        STRING,
        "https",
        "Check of the host name in the certificate of another broker: https, or empty for no "
        "check.",
        None,
        LOW,
        PER_BROKER,
    ),
    ConfigKey(
        "ssl.principal.mapping.rules",
        STRING,
        "DEFAULT",
        "Rules that map the distinguished name of a client certificate to the name of its "
        "principal, as a comma-separated list of RULE:pattern/replacement/[LU] or DEFAULT. The "
        "first rule that matches applies; a client that matches none is rejected.",
        None,
        LOW,
    ),
    ConfigKey(
        "ssl.allow.dn.changes",
        BOOLEAN,
        False,
        "Whether a changed key store may have a certificate with another distinguished name.",
        None,
        LOW,
    ),
    ConfigKey(
        "ssl.allow.san.changes",
        BOOLEAN,
        False,
        "Whether a changed key store may have a certificate without some of the current "
        "subject alternative names.",
        None,
        LOW,
    ),
]
