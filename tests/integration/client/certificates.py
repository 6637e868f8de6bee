"""A certificate authority for tests and the certificates that it signs, made with `openssl`."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

HAS_OPENSSL = shutil.which("openssl") is not None
needs_openssl = pytest.mark.skipif(not HAS_OPENSSL, reason="openssl is not installed")


@dataclass(frozen=True)
class Certificate:
    certificate: str
    key: str


class Authority:
    def __init__(self, home: Path) -> None:
        self._home = home
        self.certificate = str(home / "ca.pem")
        self._key = str(home / "ca.key")
        self._openssl(
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=authority of the tests", "-keyout", self._key),
            *("-out", self.certificate),
        )

    def sign(self, name: str, alternative_names: str, password: str | None = None) -> Certificate:
        key, request, signed = (str(self._home / f"{name}.{end}") for end in ("key", "csr", "pem"))
        protection = ["-nodes"] if password is None else ["-passout", f"pass:{password}"]
        self._openssl(
            *("req", "-newkey", "rsa:2048", *protection, "-subj", f"/CN={name}"),
            *("-keyout", key, "-out", request),
        )
        extensions = self._home / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternative_names}\n")
        self._openssl(
            *("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key),
            *("-CAcreateserial", "-days", "2", "-extfile", str(extensions), "-out", signed),
        )
        return Certificate(signed, key)

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=self._home)
