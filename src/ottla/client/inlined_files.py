"""Replacement of key and certificate files by their contents, for processes on other machines."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.base.errors import UserError
from ottla.client.config import CommonConfig
from ottla.client.errors import InvalidConfig
from ottla.client.tls import tls_settings
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
    settings = tls_settings(kind.of(None, properties, {}))
    if settings is None or not settings.files:
        return dict(properties)
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
    kept = {name: text for name, text in properties.items() if name not in _REPLACED}
    return kept | {name: text for name, text in inlined.items() if text}
