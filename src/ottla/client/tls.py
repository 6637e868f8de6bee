"""TLS contexts of a client's connections, which follow changes of the certificates' files.

A new connection uses the files as they are when it is opened, so that a client outlives the renewal
of its certificate. Files that cannot be used, such as half-written ones, are logged, and the
previous context stays in use. Files are read in a thread.
"""

from __future__ import annotations

import asyncio
import logging
import ssl

from ottla.base.config.tls_settings import TlsSettings
from ottla.base.errors import UserError
from ottla.client.config import CommonConfig
from ottla.client.errors import InvalidConfig
from ottla.net.tls import client_context, file_stamps

logger = logging.getLogger(__name__)


def tls_settings(config: CommonConfig) -> TlsSettings | None:
    """Return the TLS settings of a client, or None if it does not use TLS.

    librdkafka's `ssl.ca.location`, `ssl.certificate.location` and `ssl.key.location` take
    precedence over the key and trust stores.

    Raises:
        InvalidConfig: The properties contradict each other.
    """
    if not config.security_protocol.upper().endswith("SSL"):
        return None
    keystore, keystore_type = config.ssl_keystore_location, config.ssl_keystore_type
    truststore, truststore_type = config.ssl_truststore_location, config.ssl_truststore_type
    names = {}
    if config.ssl_ca_location:
        truststore, truststore_type = config.ssl_ca_location, "PEM"
        names["truststore.location"] = "ssl.ca.location"
    if config.ssl_certificate_location:
        keystore, keystore_type = config.ssl_certificate_location, "PEM"
        names["keystore.location"] = "ssl.certificate.location"
    elif config.ssl_key_location:
        raise InvalidConfig("ssl.key.location needs ssl.certificate.location.")
    algorithm = config.ssl_endpoint_identification_algorithm
    return TlsSettings(
        protocol=config.ssl_protocol,
        enabled_protocols=tuple(config.ssl_enabled_protocols),
        cipher_suites=tuple(config.ssl_cipher_suites),
        keystore_type=keystore_type,
        keystore_location=keystore or None,
        key_location=config.ssl_key_location or None,
        keystore_password=config.ssl_keystore_password or None,
        key_password=config.ssl_key_password or None,
        keystore_key=config.ssl_keystore_key or None,
        keystore_certificate_chain=config.ssl_keystore_certificate_chain or None,
        truststore_type=truststore_type,
        truststore_location=truststore or None,
        truststore_password=config.ssl_truststore_password or None,
        truststore_certificates=config.ssl_truststore_certificates or None,
        endpoint_identification_algorithm="" if algorithm.lower() == "none" else algorithm,
        names=tuple(names.items()),
    )


class ClientTls:
    """The TLS context of a client. It belongs to one event loop."""

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._stamps: tuple[object, ...] = ()
        self._context: ssl.SSLContext | None = None
        self._loading = asyncio.Lock()

    async def context(self) -> ssl.SSLContext:
        """Return the context for a new connection.

        Raises:
            InvalidConfig: A file cannot be used, and none could be used before.
        """
        async with self._loading:
            if self._context is None or self._settings.files:
                self._context = await asyncio.to_thread(self._current)
            return self._context

    def _current(self) -> ssl.SSLContext:
        stamps = file_stamps(self._settings)
        if self._context is not None and stamps == self._stamps:
            return self._context
        try:
            context = client_context(self._settings)
        except UserError as error:
            if self._context is None:
                raise InvalidConfig(str(error)) from None
            logger.warning("the client keeps its TLS certificates: %s", error)
            context = self._context
        else:
            if self._context is not None:
                logger.info("the client uses changed TLS certificates")
        self._stamps = stamps
        return context
