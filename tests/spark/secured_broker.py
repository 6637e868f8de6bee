"""A broker whose listeners authenticate in four ways, and a profile for each of them.

The profiles name their files with a path below `/proc/self/cwd`, the working directory of the
process that reads them. Only a driver that runs in the directory of the profiles finds the files:
Spark's executors have working directories of their own."""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integration.client.certificates import Authority
from tests.jwt_issuer import AUDIENCE, ISSUER, SigningKey, key_set, sign

from ottla import Admin
from ottla.client.admin import ScramMechanism, UserScramCredentialUpsertion
from ottla.testing.broker import BrokerProcess

USER = "alice"
PASSWORDS = {
    "scram": "MARKER-scram",
    "plain": "MARKER-plain",
    "mutual": "MARKER-of-the-key",
    "oauth": "MARKER-client",
}
"""The secret of each profile: a password, the one of a key, or the secret of an OAuth client."""
WAYS = tuple(PASSWORDS)
SECRETS = "secrets"
"""Directory of the profiles, in the driver's working directory."""
VISIBLE_TO_DRIVER = f"/proc/self/cwd/{SECRETS}"
TOKEN_LIFETIME_S = 60
_KEY = SigningKey("k1")
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class TokenEndpoint:
    """A token endpoint with TLS for one OAuth client, which remembers its tokens."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self.tokens: list[str] = []
        expected = base64.b64encode(f"{USER}:{PASSWORDS['oauth']}".encode()).decode()
        tokens = self.tokens

        class Handler(http.server.BaseHTTPRequestHandler):
            def setup(self) -> None:
                # In the thread of the connection, so that no client holds up another one.
                self.request = tls.wrap_socket(self.request, server_side=True)
                super().setup()

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                status, content = 401, {"error": "invalid_client"}
                if self.headers["Authorization"] == f"Basic {expected}":
                    tokens.append(sign(_KEY, sub=USER, exp=time.time() + TOKEN_LIFETIME_S))
                    status, content = 200, {"access_token": tokens[-1], "token_type": "Bearer"}
                body = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass  # a client that was killed

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"https://127.0.0.1:{self._server.server_port}/token"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class SecuredBroker:
    """A running broker with the listeners PLAINTEXT, SCRAM, PLAIN, MUTUAL and OAUTH."""

    def __init__(
        self, broker: BrokerProcess, authority: Authority, home: Path, endpoint: TokenEndpoint
    ) -> None:
        self.broker = broker
        self.endpoint = endpoint
        self._authority = authority
        self._home = home
        with Admin(self.bootstrap) as admin:
            admin.alter_user_scram_credentials(
                [
                    UserScramCredentialUpsertion(
                        USER, ScramMechanism.SCRAM_SHA_512, PASSWORDS["scram"]
                    )
                ]
            )

    @property
    def bootstrap(self) -> str:
        """Address of the listener without authentication, for checks."""
        return f"127.0.0.1:{self.broker.ports['PLAINTEXT']}"

    def profile(self, way: str, home: Path) -> dict[str, str]:
        """Write a profile and its files into `home/secrets`, and return its properties."""
        folder = home / SECRETS
        folder.mkdir(mode=0o700)
        for name in ("ca.pem", "client.pem", "client.key"):
            (folder / name).write_bytes((self._home / name).read_bytes())
        properties = {
            "bootstrap.servers": f"127.0.0.1:{self.broker.ports[way.upper()]}",
            "security.protocol": "SASL_SSL",
            **self._credentials(way),
        }
        file = folder / "client.properties"
        file.touch(mode=0o600)
        file.write_text("".join(f"{name}={text}\n" for name, text in properties.items()))
        return properties

    def _credentials(self, way: str) -> Mapping[str, str]:
        secret, authority = PASSWORDS[way], f"{VISIBLE_TO_DRIVER}/ca.pem"
        match way:
            case "scram":
                return {
                    "ssl.ca.location": authority,
                    "sasl.mechanism": "SCRAM-SHA-512",
                    "sasl.username": USER,
                    "sasl.password": secret,
                }
            case "plain":
                return {
                    "ssl.truststore.location": authority,
                    "ssl.truststore.type": "PEM",
                    "sasl.mechanism": "PLAIN",
                    "sasl.jaas.config": f'{_PLAIN} username="{USER}" password="{secret}";',
                }
            case "mutual":
                return {
                    "security.protocol": "SSL",
                    "ssl.ca.location": authority,
                    "ssl.certificate.location": f"{VISIBLE_TO_DRIVER}/client.pem",
                    "ssl.key.location": f"{VISIBLE_TO_DRIVER}/client.key",
                    "ssl.key.password": secret,
                }
            case _:
                return {
                    "ssl.ca.location": authority,
                    "sasl.mechanism": "OAUTHBEARER",
                    "sasl.oauthbearer.token.endpoint.url": self.endpoint.url,
                    "sasl.oauthbearer.client.credentials.client.id": USER,
                    "sasl.oauthbearer.client.credentials.client.secret": secret,
                    "https.ca.location": authority,
                }

    def secrets(self) -> list[str]:
        """Return all texts that must not be shown anywhere."""
        key = (self._home / "client.key").read_text().split()
        signatures = [token.rpartition(".")[2] for token in self.endpoint.tokens]
        return ["MARKER", "PRIVATE KEY", *(line for line in key if len(line) > 40), *signatures]

    def leaks(self, text: str) -> list[str]:
        """Return the lines of a text with a secret."""
        secrets = self.secrets()
        if not any(each in text for each in secrets):
            return []
        return [line[:500] for line in text.splitlines() if any(each in line for each in secrets)]


@contextmanager
def secured_broker(home: Path) -> Iterator[SecuredBroker]:
    """Start a broker with a token endpoint. `home` gets the certificates."""
    authority = Authority(home)
    server = authority.sign("broker", "DNS:localhost,IP:127.0.0.1")
    authority.sign("client", "DNS:client", password=PASSWORDS["mutual"])
    key = Path(server.key).read_text() + Path(server.certificate).read_text()
    (home / "broker-store.pem").write_text(key)
    (home / "keys.json").write_bytes(key_set(_KEY))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(home / "broker-store.pem")
    endpoint = TokenEndpoint(tls)
    try:
        with BrokerProcess(overrides=_overrides(home, authority)) as broker:
            yield SecuredBroker(broker, authority, home, endpoint)
    finally:
        endpoint.close()


def _overrides(home: Path, authority: Authority) -> dict[str, Any]:
    names = ("PLAINTEXT", *(way.upper() for way in WAYS))
    protocols = {"PLAINTEXT": "PLAINTEXT", "MUTUAL": "SSL"}
    oauth = "sasl.oauthbearer."
    return {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocols.get(name, 'SASL_SSL')}" for name in names
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(home / "broker-store.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.certificate,
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plain.plain.sasl.jaas.config": (
            f'{_PLAIN} user_{USER}="{PASSWORDS["plain"]}";'
        ),
        "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.oauth.oauthbearer.sasl.server.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        f"{oauth}jwks.endpoint.url": (home / "keys.json").as_uri(),
        f"{oauth}expected.issuer": ISSUER,
        f"{oauth}expected.audience": AUDIENCE,
    }
