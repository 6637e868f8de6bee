"""The TLS context of a client's connections, which is replaced when its files change."""

from __future__ import annotations

import logging
import ssl
import threading
import time

from ottla.base.config.tls_settings import TlsSettings
from ottla.base.errors import UserError
from ottla.net.tls import certificate_of, client_context, file_stamps

logger = logging.getLogger(__name__)

EXPIRY_WARNING_S = 30 * 86_400


class ClientContexts:
    """Source of the context for each new connection.

    Files that cannot be used are logged, and the last usable context stays: a certificate that is
    being written must not stop a client.
    """

    def __init__(self, settings: TlsSettings, server: str) -> None:
        """Load the context.

        Args:
            settings: The settings of the client.
            server: Name of the kind of server, for messages.

        Raises:
            UserError: A setting or a file cannot be used.
        """
        self._settings = settings
        self._server = server
        self._lock = threading.Lock()
        self._stamps = file_stamps(settings)
        self._context = client_context(settings)
        self._warn_of_expiry()

    def current(self) -> ssl.SSLContext:
        """Return the context for the next connection. Reads files, and may run in any thread."""
        with self._lock:
            stamps = file_stamps(self._settings)
            if stamps != self._stamps:
                self._stamps = stamps
                self._load()
            return self._context

    def _load(self) -> None:
        try:
            self._context = client_context(self._settings)
        except UserError as error:
            logger.error("connections to %s keep their TLS certificates: %s", self._server, error)
        else:
            logger.info("new connections to %s use changed TLS certificates", self._server)
            self._warn_of_expiry()

    def _warn_of_expiry(self) -> None:
        if self._settings.keystore_location is None:
            return
        try:
            expires_at = certificate_of(self._settings).expires_at
        except UserError:  # the package cryptography, which parses certificates, is not installed
            return
        left_s = expires_at - time.time()
        if left_s <= EXPIRY_WARNING_S:
            when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(expires_at))
            tense = "expires" if left_s > 0 else "expired"
            logger.warning(
                "the TLS certificate for connections to %s %s at %s", self._server, tense, when
            )
