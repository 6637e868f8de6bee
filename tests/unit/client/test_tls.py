"""TLS settings of clients, and the reload of changed files."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.integration.client.certificates import Authority, needs_openssl

from ottla.base.config.tls_settings import TlsSettings
from ottla.client.config import CommonConfig
from ottla.client.errors import InvalidConfig
from ottla.client.tls import ClientTls, tls_settings


def settings(**keywords: Any) -> TlsSettings:
    found = tls_settings(CommonConfig.of("a:1", None, {"security_protocol": "SSL", **keywords}))
    assert found is not None
    return found


def test_only_protocols_with_tls_have_settings() -> None:
    for protocol, has in [("PLAINTEXT", False), ("SASL_PLAINTEXT", False), ("sasl_ssl", True)]:
        config = CommonConfig.of("a:1", None, {"security_protocol": protocol})
        assert (tls_settings(config) is not None) == has


def test_kafkas_properties_are_the_settings() -> None:
    found = settings(
        ssl_protocol="TLSv1.2",
        ssl_enabled_protocols="TLSv1.2",
        ssl_cipher_suites=["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"],
        ssl_keystore_type="PKCS12",
        ssl_keystore_location="me.p12",
        ssl_keystore_password="p",
        ssl_endpoint_identification_algorithm="",
    )
    assert found == TlsSettings(
        protocol="TLSv1.2",
        enabled_protocols=("TLSv1.2",),
        cipher_suites=("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",),
        keystore_type="PKCS12",
        keystore_location="me.p12",
        keystore_password="p",
        endpoint_identification_algorithm="",
    )


def test_settings_can_be_compared_and_hashed() -> None:
    """Brokers keep them in sets."""
    first, second = settings(ssl_ca_location="ca.pem"), settings(ssl_ca_location="ca.pem")
    assert {first, second} == {first}


def test_librdkafkas_names_of_pem_text_are_kafkas_properties() -> None:
    given = {
        "bootstrap.servers": "a:1",
        "security.protocol": "ssl",
        "ssl.ca.pem": "authority",
        "ssl.certificate.pem": "chain",
        "ssl.key.pem": "key",
        "ssl.endpoint.identification.algorithm": "none",
    }
    found = tls_settings(CommonConfig.of(given, None, {}))
    assert found == TlsSettings(
        keystore_key="key",
        keystore_certificate_chain="chain",
        truststore_certificates="authority",
        endpoint_identification_algorithm="",
    )


def test_a_key_without_a_certificate_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"ssl\.key\.location needs ssl\.certificate\.location"):
        settings(ssl_key_location="key.pem")


def test_messages_have_the_name_that_the_user_set() -> None:
    for name in ("ssl.ca.location", "ssl.truststore.location"):
        tls = settings(**{name.replace(".", "_"): "/no/ca.pem"})
        with pytest.raises(InvalidConfig, match=f"^{name}=/no/ca.pem cannot be used: no such file"):
            asyncio.run(ClientTls(tls).context())


def test_a_store_in_javas_format_names_the_command_that_converts_it(tmp_path: Path) -> None:
    store = tmp_path / "me.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    with pytest.raises(InvalidConfig, match=r"Convert it with: keytool -importkeystore"):
        asyncio.run(ClientTls(settings(ssl_keystore_location=str(store))).context())


@needs_openssl
def test_new_connections_use_changed_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    path = tmp_path / "trusted.pem"
    shutil.copy(authority.certificate, path)
    os.utime(path, ns=(1, 1))

    async def run() -> None:
        tls = ClientTls(settings(ssl_ca_location=str(path)))
        first = await tls.context()
        assert await tls.context() is first
        os.utime(path, ns=(2, 2))
        second = await tls.context()
        assert second is not first
        path.write_text("half of a certif")
        with caplog.at_level(logging.WARNING):
            assert await tls.context() is second
            assert await tls.context() is second
        (warning,) = (each.getMessage() for each in caplog.records)
        assert warning.startswith("the client keeps its TLS certificates: ssl.ca.location=")
        shutil.copy(authority.certificate, path)
        assert await tls.context() not in (first, second)

    asyncio.run(run())


def test_without_files_the_context_is_made_once() -> None:
    async def run() -> None:
        tls = ClientTls(settings())
        first, second = await asyncio.gather(tls.context(), tls.context())
        assert first is second

    asyncio.run(run())
