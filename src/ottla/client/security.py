"""Secure connections: TLS, and SASL with PLAIN or SCRAM.

Credentials come from `sasl.username` and `sasl.password`, or from Java's `sasl.jaas.config`."""

from __future__ import annotations

import re
import ssl
from typing import TYPE_CHECKING

from ottla.client.config import CommonConfig
from ottla.client.errors import InvalidConfig
from ottla.net import sasl

if TYPE_CHECKING:
    from ottla.net.connection import Authenticate

_JAAS_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")


def tls_context(config: CommonConfig) -> ssl.SSLContext | None:
    if not config.security_protocol.upper().endswith("SSL"):
        return None
    ca_name = "ssl.ca.location" if config.ssl_ca_location else "ssl.truststore.location"
    ca_file = config.ssl_ca_location or config.ssl_truststore_location
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise InvalidConfig(f"{ca_name}={ca_file} cannot be used: {_reason(error)}.") from None
    if ca_file:
        # Since Python 3.13 the default also rejects CAs without the key usage extension, which
        # private ones often lack. Kafka's other clients accept them; so does Ottla.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not config.ssl_endpoint_identification_algorithm:
        context.check_hostname = False
    if config.ssl_certificate_location:
        certificate, key = config.ssl_certificate_location, config.ssl_key_location
        try:
            # Always pass a password: without one, OpenSSL prompts for it on the terminal.
            context.load_cert_chain(certificate, key or None, config.ssl_key_password)
        except (OSError, ssl.SSLError) as error:
            files = f"ssl.certificate.location={certificate}"
            files += f" with ssl.key.location={key}" if key else ""
            raise InvalidConfig(f"{files} cannot be used: {_reason(error)}.") from None
    return context


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return (error.strerror or str(error)).lower()


def authenticator(config: CommonConfig) -> Authenticate | None:
    if not config.security_protocol.upper().startswith("SASL"):
        return None
    timeout_s = config.socket_connection_setup_timeout_ms / 1000
    return sasl.authenticator(_mechanism(config), timeout_s)


def _mechanism(config: CommonConfig) -> sasl.SaslMechanism:
    username, password = credentials(config)
    if config.sasl_mechanism == sasl.PLAIN:
        return sasl.Plain(username, password)
    return sasl.Scram(
        config.sasl_mechanism, username, password, is_token=_uses_delegation_token(config)
    )


def _uses_delegation_token(config: CommonConfig) -> bool:
    """Return whether `sasl.jaas.config` has the option `tokenauth="true"`."""
    return _jaas_options(config).get("tokenauth", "").lower() == "true"


def _jaas_options(config: CommonConfig) -> dict[str, str]:
    return {
        match[1]: re.sub(r"\\(.)", r"\1", match[2] or match[3] or match[4] or "")
        for match in _JAAS_OPTION.finditer(config.sasl_jaas_config or "")
    }


def credentials(config: CommonConfig) -> tuple[str, str]:
    username, password = config.sasl_username, config.sasl_password
    if config.sasl_jaas_config:
        options = _jaas_options(config)
        username = username or options.get("username", "")
        password = password or options.get("password", "")
    if not username:
        raise InvalidConfig(
            f"security.protocol is {config.security_protocol}: "
            "sasl.username and sasl.password must be set."
        )
    return username, password
