"""TLS contexts from key and trust stores, in PEM or PKCS12 format, in files or in properties.

OpenSSL reads keys only from files. A key that is not in a PEM file is passed to it in an anonymous
file in memory where the system has such files, otherwise in a private temporary file.
"""

from __future__ import annotations

import os
import re
import secrets
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.config.tls_settings import TlsSettings
from ottla.base.errors import UserError
from ottla.base.installation import install_extra

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
    from cryptography.x509 import Name

MAX_STORE_BYTES = 16 * 1024 * 1024
"""Largest key or trust store. A device such as /dev/zero would fill the memory."""
_JKS_MAGIC = b"\xfe\xed\xfe\xed"
_PEM_START = b"-----BEGIN "
_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)
_ALERT = "ottla_alert"
"""Attribute of an exception."""
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_TLS_1_3_SUITES = frozenset(
    {
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_CCM_SHA256",
        "TLS_AES_128_CCM_8_SHA256",
    }
)


class ServerStream(ssl.SSLObject):
    """The server's end of an encrypted connection. It keeps the alert of a failed handshake.

    Event loops close the connection when a handshake fails, without sending the alert that OpenSSL
    has written. The client then takes a rejected certificate for a network failure, and retries.
    """

    outgoing: ssl.MemoryBIO

    def do_handshake(self) -> None:
        """Continue the handshake."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            setattr(error, _ALERT, self.outgoing.read())
            raise


class ServerContext(ssl.SSLContext):
    """The context of a listener, whose connections are `ServerStream`s."""

    sslobject_class = ServerStream

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Create the server's end of a connection."""
        stream = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        assert isinstance(stream, ServerStream)
        stream.outgoing = outgoing
        return stream


def alert_of(error: BaseException) -> bytes:
    """Return the alert of a handshake that failed on a `ServerContext`, which was not sent."""
    alert: bytes = getattr(error, _ALERT, b"")
    return alert


def server_context(settings: TlsSettings) -> ServerContext:
    """Return the context of a listener.

    Raises:
        UserError: A setting or a file cannot be used. The message is a sentence that names it.
    """
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    # The default of OpenSSL 3. Before, clients could make a broker compute signatures endlessly.
    context.options |= ssl.OP_NO_RENEGOTIATION
    _set_protocols(context, settings)
    if not _load_key(context, settings):
        raise UserError(
            f"A TLS listener needs a certificate. Set {settings.name_of('keystore.location')}, or "
            f"{settings.name_of('keystore.key')} and "
            f"{settings.name_of('keystore.certificate.chain')}."
        )
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    if context.verify_mode != ssl.CERT_NONE:
        _load_trust(context, settings, ssl.Purpose.CLIENT_AUTH)
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context of connections to a broker.

    Raises:
        UserError: A setting or a file cannot be used. The message is a sentence that names it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _set_protocols(context, settings)
    context.check_hostname = bool(settings.endpoint_identification_algorithm)
    _load_key(context, settings)
    _load_trust(context, settings, ssl.Purpose.SERVER_AUTH)
    return context


def file_stamps(settings: TlsSettings) -> tuple[object, ...]:
    """Return values that differ when one of the files has changed."""
    found: list[object] = []
    for path in settings.files:
        try:
            status = os.stat(path)
        except OSError as error:
            found.append(error.errno)
        else:
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)


class PemText(NamedTuple):
    """Keys and certificates of settings as PEM text; an empty text for what is not set."""

    key: str
    chain: str
    key_password: str
    trusted: str


def pem_text(settings: TlsSettings) -> PemText:
    """Return the contents of the key and trust stores, which another machine can use.

    Raises:
        UserError: A file cannot be used.
    """
    key, chain = settings.keystore_key or "", settings.keystore_certificate_chain or ""
    password = settings.key_password or ""
    if settings.keystore_location and not (key or chain):
        what = f"{settings.name_of('keystore.location')}={settings.keystore_location}"
        data = _read(settings.keystore_location, what)
        if not _is_pem(data, settings.keystore_type, what):
            data, password = _key_of_pkcs12(data, settings, what)
        elif settings.key_location:
            name = settings.name_of("key.location")
            data += b"\n" + _read(settings.key_location, f"{name}={settings.key_location}")
        blocks = [match[0] for match in _PEM_BLOCK.finditer(data.decode("ascii", "ignore"))]
        key = "\n".join(each for each in blocks if "PRIVATE KEY-----" in each)
        chain = "\n".join(each for each in blocks if "PRIVATE KEY-----" not in each)
    found = _trusted(settings)
    return PemText(
        key, chain, password, "" if found is None else found[0].decode("ascii", "ignore")
    )


class Certificate(NamedTuple):
    """The facts about a certificate that decide whether another one may replace it."""

    subject: str
    attributes: list[list[tuple[str, str]]]
    """Subject as `ssl.SSLObject.getpeercert` returns it."""
    names: frozenset[str]
    """Subject alternative names."""
    expires_at: float
    """Time in seconds since 1970."""


def certificate_of(settings: TlsSettings) -> Certificate:
    """Return the certificate in a key store.

    Raises:
        UserError: There is no key store, or it cannot be used.
    """
    x509 = _import_x509()
    if settings.keystore_certificate_chain:
        what = settings.name_of("keystore.certificate.chain")
        data = settings.keystore_certificate_chain.encode()
    else:
        what = f"{settings.name_of('keystore.location')}={settings.keystore_location}"
        data = _read(settings.keystore_location or "", what)
        if not _is_pem(data, settings.keystore_type, what):
            data, _ = _key_of_pkcs12(data, settings, what)
    try:
        found = x509.load_pem_x509_certificates(data)[0]
        extension = found.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = frozenset(str(each.value) for each in extension.value)
    except x509.ExtensionNotFound:
        names = frozenset()
    except ValueError as error:
        raise UserError(f"{what} cannot be used: {_reason(error)}.") from None
    return Certificate(
        found.subject.rfc4514_string(),
        _attributes(found.subject),
        names,
        found.not_valid_after_utc.timestamp(),
    )


def _attributes(name: Name) -> list[list[tuple[str, str]]]:
    return [
        [(_openssl_name(each.oid.dotted_string), str(each.value)) for each in rdn]
        for rdn in name.rdns
    ]


def _openssl_name(oid: str) -> str:
    """Return OpenSSL's name of an attribute, or its number if OpenSSL does not know it."""
    try:
        return ssl._ASN1Object(oid).longname
    except ValueError:
        return oid


def _import_x509() -> ModuleType:
    try:
        from cryptography import x509
    except ModuleNotFoundError:
        raise UserError(
            "TLS listeners require the package cryptography. Install it with: "
            f"{install_extra('security')}"
        ) from None
    return x509


# -------------------------------------------------------------------------- versions and ciphers


def _set_protocols(context: ssl.SSLContext, settings: TlsSettings) -> None:
    name = settings.name_of("enabled.protocols")
    unknown = [each for each in settings.enabled_protocols if each not in _VERSIONS]
    if unknown or not settings.enabled_protocols:
        raise UserError(
            f"{name}={','.join(settings.enabled_protocols)} cannot be used: the versions of TLS "
            f"are {' and '.join(_VERSIONS)}."
        )
    versions = [_VERSIONS[each] for each in settings.enabled_protocols]
    newest = _VERSIONS.get(settings.protocol, ssl.TLSVersion.TLSv1_3)
    context.minimum_version = min(versions)
    context.maximum_version = max(min(max(versions), newest), min(versions))
    if settings.cipher_suites:
        _set_ciphers(context, settings)


def _set_ciphers(context: ssl.SSLContext, settings: TlsSettings) -> None:
    older = [each for each in settings.cipher_suites if each not in _TLS_1_3_SUITES]
    if not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    if len(older) == len(settings.cipher_suites):
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.set_ciphers(":".join(map(_openssl_cipher, older)))
    except ssl.SSLError:
        raise UserError(
            f"{settings.name_of('cipher.suites')}={','.join(settings.cipher_suites)} cannot be "
            "used: OpenSSL knows none of the cipher suites."
        ) from None


def _openssl_cipher(name: str) -> str:
    """Return OpenSSL's name of a cipher suite of TLS 1.2 with an IANA name."""
    name = name.removeprefix("TLS_").replace("_WITH_", "_").replace("AES_", "AES")
    name = name.removeprefix("RSA_") if not name.startswith(("DHE", "ECDHE")) else name
    name = name.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    return name.replace("_CBC_", "_").replace("_", "-")


# --------------------------------------------------------------------------------- private keys


def _load_key(context: ssl.SSLContext, settings: TlsSettings) -> bool:
    """Load the private key and its certificates. Returns whether there are any."""
    if settings.keystore_key or settings.keystore_certificate_chain:
        _load_inline_key(context, settings)
        return True
    if not settings.keystore_location:
        return False
    what = f"{settings.name_of('keystore.location')}={settings.keystore_location}"
    data = _read(settings.keystore_location, what)
    if _is_pem(data, settings.keystore_type, what):
        if settings.key_location:
            what += f" with {settings.name_of('key.location')}={settings.key_location}"
        _load_chain(
            context, settings.keystore_location, settings.key_password, what, settings.key_location
        )
        return True
    pem, password = _key_of_pkcs12(data, settings, what)
    with _file_of(pem) as path:
        _load_chain(context, path, password, what)
    return True


def _load_inline_key(context: ssl.SSLContext, settings: TlsSettings) -> None:
    key_name = settings.name_of("keystore.key")
    chain_name = settings.name_of("keystore.certificate.chain")
    key, chain = settings.keystore_key, settings.keystore_certificate_chain
    if not key or not chain:
        raise UserError(f"{key_name} and {chain_name} must be set together.")
    what = f"The key in {key_name} with the certificates in {chain_name}"
    with _file_of(f"{key.strip()}\n{chain.strip()}\n".encode()) as path:
        _load_chain(context, path, settings.key_password, what)


def _load_chain(
    context: ssl.SSLContext,
    path: str,
    password: str | None,
    what: str,
    key_path: str | None = None,
) -> None:
    try:
        # Always pass a password: without one, OpenSSL prompts for it on the terminal.
        context.load_cert_chain(path, key_path, password=password or "")
    except (OSError, ValueError) as error:
        raise UserError(f"{what} cannot be used: {_reason(error)}.") from None


def _key_of_pkcs12(data: bytes, settings: TlsSettings, what: str) -> tuple[bytes, str]:
    """Return the key and the certificates in PEM format, and the password of the key.

    The key is encrypted, so that it is never stored in plain text.
    """
    store = _pkcs12(data, settings.keystore_password, settings.name_of("keystore.password"), what)
    from cryptography.hazmat.primitives import serialization

    if store.key is None or store.cert is None:
        raise UserError(f"{what} cannot be used: it has no private key with a certificate.")
    password = secrets.token_urlsafe(24)
    key = store.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password.encode()),
    )
    certificates = [store.cert, *store.additional_certs]
    chain = [each.certificate.public_bytes(serialization.Encoding.PEM) for each in certificates]
    return b"".join([key, *chain]), password


# -------------------------------------------------------------------------- trusted authorities


def _load_trust(context: ssl.SSLContext, settings: TlsSettings, purpose: ssl.Purpose) -> None:
    found = _trusted(settings)
    if found is None:
        context.load_default_certs(purpose)
    else:
        _trust(context, *found)


def _trusted(settings: TlsSettings) -> tuple[bytes, str] | None:
    """Return the trusted certificates in PEM format, and their origin for messages."""
    if settings.truststore_certificates:
        return settings.truststore_certificates.encode(), settings.name_of(
            "truststore.certificates"
        )
    if not settings.truststore_location:
        return None
    what = f"{settings.name_of('truststore.location')}={settings.truststore_location}"
    data = _read(settings.truststore_location, what)
    if not _is_pem(data, settings.truststore_type, what):
        data = _certificates_of_pkcs12(data, settings, what)
    return data, what


def _trust(context: ssl.SSLContext, pem: bytes, what: str) -> None:
    try:
        context.load_verify_locations(cadata=pem.decode("ascii", "ignore"))
    except (ValueError, ssl.SSLError) as error:
        raise UserError(f"{what} cannot be used: {_reason(error)}.") from None


def _certificates_of_pkcs12(data: bytes, settings: TlsSettings, what: str) -> bytes:
    name = settings.name_of("truststore.password")
    store = _pkcs12(data, settings.truststore_password, name, what)
    from cryptography.hazmat.primitives import serialization

    found = [each for each in (store.cert, *store.additional_certs) if each is not None]
    if not found:
        raise UserError(f"{what} cannot be used: it has no certificates.")
    return b"".join(each.certificate.public_bytes(serialization.Encoding.PEM) for each in found)


# ------------------------------------------------------------------------------------- files


def _read(path: str, what: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_STORE_BYTES + 1)
    except OSError as error:
        raise UserError(f"{what} cannot be used: {_reason(error)}.") from None
    if len(data) > MAX_STORE_BYTES:
        raise UserError(f"{what} cannot be used: it has more than {MAX_STORE_BYTES} bytes.")
    return data


def _is_pem(data: bytes, type_: str, what: str) -> bool:
    """Return whether a store is in PEM format, and not in PKCS12."""
    if data.startswith(_JKS_MAGIC):
        raise UserError(
            f"{what} cannot be used: it is in Java's JKS format. Convert it with: keytool "
            "-importkeystore -srckeystore STORE.jks -destkeystore STORE.p12 -deststoretype PKCS12"
        )
    is_pem = _PEM_START in data
    if type_ != "JKS" and is_pem != (type_ == "PEM"):
        raise UserError(f"{what} cannot be used: it is not in {type_} format.")
    return is_pem


def _pkcs12(
    data: bytes, password: str | None, password_name: str, what: str
) -> PKCS12KeyAndCertificates:
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ModuleNotFoundError:
        raise UserError(
            f"{what} cannot be used: PKCS12 stores require the package cryptography. Install it "
            f"with: {install_extra('security')}"
        ) from None
    try:
        return pkcs12.load_pkcs12(data, password.encode() if password else None)
    except ValueError:
        raise UserError(
            f"{what} cannot be used: the password in {password_name} is wrong, or the file is not "
            "in PKCS12 format."
        ) from None


@contextmanager
def _file_of(data: bytes) -> Iterator[str]:
    """Provide a file with some content that no other user can read."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").exists():
        descriptor = os.memfd_create("ottla")
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as temporary:
        temporary.write(data)
        temporary.flush()
        yield temporary.name


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    if isinstance(error, ssl.SSLError) and "PEM lib" in str(error):
        return "the password of the key is wrong, or the key or a certificate is not in PEM format"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error).rstrip(".")
