"""TLS contexts of clients whose files change."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.integration.client.certificates import Authority, needs_openssl

from ottla.base.config.tls_settings import TlsSettings
from ottla.base.errors import UserError
from ottla.net.client_contexts import ClientContexts

pytestmark = needs_openssl


@pytest.fixture
def store(tmp_path: Path) -> Path:
    own = Authority(tmp_path).sign("client", "DNS:localhost")
    found = tmp_path / "client-store.pem"
    found.write_text(Path(own.key).read_text() + Path(own.certificate).read_text())
    return found


def contexts(store: Path) -> ClientContexts:
    return ClientContexts(TlsSettings(keystore_location=str(store)), "ZooKeeper")


def test_a_changed_file_is_loaded_for_the_next_connection(store: Path) -> None:
    found = contexts(store)
    first = found.current()
    assert found.current() is first
    store.write_text(store.read_text() + "\n")
    assert found.current() is not first


def test_a_file_that_cannot_be_used_is_logged_once_and_the_old_one_stays(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = contexts(store)
    first = found.current()
    store.write_text("half a file")
    caplog.clear()
    assert found.current() is first
    assert found.current() is first
    errors = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "connections to ZooKeeper keep their TLS certificates" in errors[0]


def test_the_first_file_must_be_usable(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be used"):
        contexts(tmp_path / "missing.pem")


def test_a_certificate_that_expires_soon_is_reported(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    contexts(store)
    assert "the TLS certificate for connections to ZooKeeper expires at 2" in caplog.text
