"""Replacement of key and certificate files by their contents, for processes on other machines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ottla.base.errors import UserError
from ottla.client.config import CommonConfig
from ottla.client.errors import InvalidConfig
from ottla.client.tls import tls_settings
from ottla.net.oauthbearer import OAUTHBEARER
from ottla.net.tls import pem_text

_REPLACED = frozenset(
    f"ssl.{name}"
    for name in (
        *("keystore.location", "keystore.type", "keystore.password", "key.location"),
        *("certificate.location", "ca.location", "truststore.location", "truststore.type"),
        "truststore.password",
    )
)


def with_inlined_files(kind: type[CommonConfig], properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties with the contents of key and certificate files instead of their paths.

    Stores in PKCS12 format become PEM text, so that the receiver needs no further package.

    Args:
        kind: The configuration class that the properties are for.
        properties: Values by Kafka's names.

    Raises:
        InvalidConfig: A property is invalid, or a file cannot be used.
    """
    config = kind.of(None, properties, {})
    settings = tls_settings(config)
    found = _with_https_authority(config, properties)
    if settings is None or not settings.files:
        return found
    try:
        pem = pem_text(settings)
    except UserError as error:
        raise InvalidConfig(str(error)) from None
    inlined = {
        "ssl.keystore.key": pem.key,
        "ssl.keystore.certificate.chain": pem.chain,
        "ssl.key.password": pem.key_password,
        "ssl.truststore.certificates": pem.trusted,
    }
    kept = {name: text for name, text in found.items() if name not in _REPLACED}
    return kept | {name: text for name, text in inlined.items() if text}


def _with_https_authority(config: CommonConfig, properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with the certificates that the token endpoint is verified with."""
    path = config.https_ca_location
    uses_tokens = config.security_protocol.upper().startswith("SASL") and (
        config.sasl_mechanism == OAUTHBEARER
    )
    if not (path and uses_tokens):
        return dict(properties)
    try:
        text = Path(path).read_text("ascii", "ignore")
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        raise InvalidConfig(f"https.ca.location={path} cannot be used: {reason}.") from None
    kept = {name: each for name, each in properties.items() if name != "https.ca.location"}
    return {**kept, "https.ca.pem": f"{text}\n{config.https_ca_pem}".strip()}
