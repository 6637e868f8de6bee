"""Tokens for OAUTHBEARER: token endpoints, files, functions, and when a token is replaced."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.integration.client.certificates import Authority, needs_openssl

from ottla.client.config import CommonConfig
from ottla.client.errors import AuthenticationFailed, ClientError, ConnectionLost, InvalidConfig
from ottla.client.oauth import RefreshPolicy, Tokens, provided, token_source
from ottla.client.token_endpoint import TokenEndpoint, expiry_of, read_token
from ottla.net.oauthbearer import (
    ACKNOWLEDGEMENT,
    BearerToken,
    OAuthBearer,
    TokenError,
    initial_response,
    rejection,
)

NOW = 1_000_000.0
SECRET = "MARKER/+ secret"


def jwt(**claims: object) -> str:
    """Return an unsigned token with the form of a signed one."""
    parts = [json.dumps({"alg": "RS256"}), json.dumps(claims), "signature"]
    return ".".join(base64.urlsafe_b64encode(each.encode()).rstrip(b"=").decode() for each in parts)


class IdentityProvider:
    """A token endpoint on this machine, with the answers of a script."""

    def __init__(self, *answers: tuple[int, bytes], tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[Mapping[str, str], dict[str, list[str]]]] = []
        script = list(answers)
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                requests.append((dict(self.headers), urllib.parse.parse_qs(body)))
                status, content = script.pop(0) if len(script) > 1 else script[0]
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        scheme = "http"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
            scheme = "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}/oauth/token"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> IdentityProvider:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def answer(**content: object) -> tuple[int, bytes]:
    return 200, json.dumps(content).encode()


def fetch(identity: IdentityProvider, **more: Any) -> tuple[BearerToken, list[float]]:
    pauses: list[float] = []
    endpoint = TokenEndpoint(identity.url, "me", SECRET, **more)
    return endpoint.fetch(now=lambda: NOW, sleep=pauses.append), pauses


# ------------------------------------------------------------------------------- token endpoint


def test_the_client_credentials_grant_of_rfc_6749() -> None:
    with IdentityProvider(answer(access_token="abc", expires_in=300)) as identity:
        token, pauses = fetch(identity, scope="kafka read")
    assert (token.value, token.expires_at, pauses) == ("abc", NOW + 300, [])
    ((headers, form),) = identity.requests
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka read"]}
    scheme, _, credentials = headers["Authorization"].partition(" ")
    assert (scheme, base64.b64decode(credentials)) == ("Basic", f"me:{SECRET}".encode())
    assert "abc" not in repr(token)


def test_credentials_are_url_encoded_if_configured() -> None:
    with IdentityProvider(answer(access_token="abc", expires_in=300)) as identity:
        fetch(identity, is_urlencoded=True)
    ((headers, form),) = identity.requests
    assert "scope" not in form
    credentials = headers["Authorization"].removeprefix("Basic ")
    assert base64.b64decode(credentials) == b"me:MARKER%2F%2B+secret"


def test_the_expiry_is_that_of_the_token_if_it_is_earlier() -> None:
    own = jwt(exp=NOW + 100, sub="me")
    with IdentityProvider(answer(access_token=own, expires_in="300")) as identity:
        assert fetch(identity)[0].expires_at == NOW + 100
    with IdentityProvider(answer(access_token=own)) as identity:
        assert fetch(identity)[0].expires_at == NOW + 100


def test_temporary_failures_are_retried_with_growing_pauses() -> None:
    good = answer(access_token="abc", expires_in=300)
    with IdentityProvider((503, b""), (429, b"slow down"), good) as identity:
        token, pauses = fetch(identity)
    assert token.value == "abc"
    assert len(pauses) == 2
    assert 0.08 <= pauses[0] <= 0.12
    assert 0.16 <= pauses[1] <= 0.24


def test_an_endpoint_that_stays_unavailable_is_a_failure_that_may_be_retried() -> None:
    with (
        IdentityProvider((503, b"")) as identity,
        pytest.raises(ConnectionLost, match=r"token endpoint http://127.*: HTTP status 503\."),
    ):
        fetch(identity)
    assert len(identity.requests) == 4


def test_an_endpoint_that_cannot_be_reached_is_named_without_its_secrets() -> None:
    endpoint = TokenEndpoint("http://user:MARKER@127.0.0.1:1/token?key=MARKER", "me", SECRET)
    with pytest.raises(ConnectionLost, match=r"endpoint http://127\.0\.0\.1:1/token") as failure:
        endpoint.fetch(sleep=lambda _: None)
    assert "MARKER" not in str(failure.value)
    assert "MARKER" not in repr(endpoint).replace(endpoint.url, "")


def test_a_refused_client_is_a_permanent_failure() -> None:
    refusal = json.dumps(
        {"error": "invalid_client", "error_description": f"no client with {SECRET}\x1b[2J."}
    ).encode()
    with (
        IdentityProvider((401, refusal)) as identity,
        pytest.raises(AuthenticationFailed) as failure,
    ):
        fetch(identity)
    assert str(failure.value).endswith(
        "refused the client me: invalid_client: no client with [hidden] [2J."
    )
    assert len(identity.requests) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no access_token"),
        (b"<html>", "has no access_token"),
        (b"[" * 100_000, "has no access_token"),
        (b'{"access_token": 5}', "has no access_token"),
        (b'{"access_token": "abc"}', "does not say when it expires"),
        (b'{"access_token": "a b\\u0001", "expires_in": 5}', "characters that are not allowed"),
        (b'{"access_token": "' + b"a" * 70_000 + b'", "expires_in": 5}', "more than 65536"),
    ],
)
def test_a_response_without_a_token_is_one_sentence(content: bytes, message: str) -> None:
    with (
        IdentityProvider((200, content)) as identity,
        pytest.raises(ConnectionLost, match=message),
    ):
        fetch(identity)


def test_the_size_of_a_response_is_limited() -> None:
    with (
        IdentityProvider((200, bytes(300_000))) as identity,
        pytest.raises(ConnectionLost, match="more than 262144 bytes"),
    ):
        fetch(identity)


@needs_openssl
def test_an_endpoint_with_a_private_authority(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.sign("identity", "IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    good = answer(access_token="abc", expires_in=300)
    with IdentityProvider(good, tls=context) as identity:
        assert fetch(identity, authority_file=authority.certificate)[0].value == "abc"
        pem = Path(authority.certificate).read_text()
        assert fetch(identity, authority_pem=pem)[0].value == "abc"
        with pytest.raises(ConnectionLost, match="certificate verify failed"):
            fetch(identity)
        with pytest.raises(InvalidConfig, match=r"https\.ca\.location=/no/ca\.pem cannot be used"):
            fetch(identity, authority_file="/no/ca.pem")


# ------------------------------------------------------------------------------------------ files


def test_a_token_is_read_from_a_file_each_time(tmp_path: Path) -> None:
    path = tmp_path / "token"
    source = source_of(sasl_oauthbearer_token_endpoint_url=path.as_uri())
    for name in ("first", "second"):
        path.write_text(jwt(exp=9e9, sub=name) + "\n")
        assert asyncio.run(source.token()).value == jwt(exp=9e9, sub=name)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "Cannot read the token file .*: no such file or directory"),
        ("root:x:0:0:MARKER", "does not contain a token with an expiry time"),
        (jwt(exp=9e9) + " MARKER", "does not contain a token"),
        (jwt(sub="me"), "does not contain a token with an expiry time"),
        (jwt(exp=NOW - 1), "has expired"),
    ],
)
def test_a_file_without_a_token_is_one_sentence(
    content: str | None, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConnectionLost, match=message) as failure:
        read_token(str(path), now=lambda: NOW)
    assert "MARKER" not in str(failure.value)


@pytest.mark.parametrize("text", ["", "a.b", "a.b.c", "a..c", f"a.{'A' * 9}.c", "a.bnVsbA.c"])
def test_what_is_not_a_jwt_has_no_expiry(text: str) -> None:
    assert expiry_of(text) is None


# ------------------------------------------------------------------------ when tokens are replaced


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


class Fetches:
    """A source of tokens that live for an hour, or an error."""

    def __init__(self, clock: Clock, lifetime_s: float = 3600) -> None:
        self.count = 0
        self.error: ClientError | None = None
        self._clock = clock
        self._lifetime_s = lifetime_s

    async def __call__(self) -> BearerToken:
        self.count += 1
        if self.error is not None:
            raise self.error
        return BearerToken(f"token-{self.count}", self._clock.now + self._lifetime_s)


def tokens(clock: Clock, fetches: Fetches) -> Tokens:
    return Tokens(fetches, RefreshPolicy(), now=clock, chance=lambda: 0.0)


def test_a_token_is_kept_until_most_of_its_lifetime_has_passed() -> None:
    async def run() -> None:
        clock = Clock()
        fetches = Fetches(clock)
        source = tokens(clock, fetches)
        found = await asyncio.gather(*(source.token() for _ in range(10)))
        assert {each.value for each in found} == {"token-1"}
        clock.now = NOW + 0.8 * 3600 - 1
        assert (await source.token()).value == "token-1"
        clock.now = NOW + 0.8 * 3600
        assert (await source.token()).value == "token-2"
        assert fetches.count == 2

    asyncio.run(run())


def test_a_token_that_is_still_valid_survives_a_failed_refresh(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        clock = Clock()
        fetches = Fetches(clock)
        source = tokens(clock, fetches)
        await source.token()
        clock.now = NOW + 3000
        fetches.error = ConnectionLost("The token endpoint cannot be used: no answer.")
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                assert (await source.token()).value == "token-1"
        assert fetches.count == 2
        assert len(caplog.records) == 1
        clock.now += 10
        await source.token()
        assert fetches.count == 3
        clock.now = NOW + 3600
        with pytest.raises(ConnectionLost, match="no answer"):
            await source.token()
        fetches.error = None
        assert (await source.token()).value == "token-5"

    asyncio.run(run())


def test_a_new_token_that_has_expired_is_refused() -> None:
    async def run() -> None:
        clock = Clock()
        with pytest.raises(ConnectionLost, match="has expired already"):
            await tokens(clock, Fetches(clock, lifetime_s=0)).token()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("lifetime", "chance", "expected"),
    [
        (3600, 0.0, 2880),
        (3600, 1.0, 3060),
        (1000, 0.0, 700),  # 300 s before its expiry
        (400, 0.0, 100),
        (361, 0.0, 61),
        (300, 0.0, 240),  # the minimum and the buffer do not fit, so that they do not count
        (60, 1.0, 51),
    ],
)
def test_the_time_of_the_refresh_follows_kafkas_rules(
    lifetime: float, chance: float, expected: float
) -> None:
    assert RefreshPolicy().refresh_at(NOW, NOW + lifetime, chance) == pytest.approx(NOW + expected)


# --------------------------------------------------------------------------------------- functions


def source_of(**keywords: Any) -> Any:
    given = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", **keywords}
    return token_source(CommonConfig.of("a:1", None, given))


def test_a_function_returns_the_token() -> None:
    async def on_loop(text: str) -> tuple[str, float]:
        return f"async-{text}", 9e9

    functions: list[tuple[Callable[..., Any], str]] = [
        (lambda: ("none", 9e9), "none"),
        (lambda text: (f"sync-{text}", 9e9), "sync-hello"),
        (on_loop, "async-hello"),
        (lambda text, more="x": (text + more, 9e9, "principal"), "hellox"),
    ]
    for function, expected in functions:
        source = source_of(oauth_cb=function, sasl_oauthbearer_config="hello")
        assert asyncio.run(source.token()).value == expected


def test_a_function_may_be_a_key_of_the_dictionary_as_in_confluent_kafka() -> None:
    given = {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "OAUTHBEARER",
        "oauth_cb": lambda _: ("token", 9e9),
    }
    config = CommonConfig.of(given, None, {})
    assert asyncio.run(token_source(config).token()).value == "token"
    assert "oauth_cb" not in repr(config)
    with pytest.raises(InvalidConfig, match="oauth_cb must be a function"):
        CommonConfig.of({**given, "oauth_cb": "print"}, None, {})


def test_expiry_times_in_milliseconds_are_recognized() -> None:
    """The signer for AWS MSK returns them."""
    assert provided(("token", 1_800_000_000_000), {}).expires_at == 1_800_000_000
    assert provided(("token", 1_800_000_000), {}).expires_at == 1_800_000_000


def test_extensions_of_the_function_override_those_of_the_properties() -> None:
    found = provided(("token", 9e9, "me", {"b": "2"}), {"a": "1", "b": "1"})
    assert found.extensions == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ("MARKER", "must return a tuple of a token and its expiry time, not str"),
        (("MARKER",), "must return a tuple"),
        ((5, 9e9), "is not text"),
        (("MARKER", "soon"), "not a number of seconds"),
        (("MARKER", 9e9, "me", "MARKER"), "not a dictionary"),
        (("MARKER \x01", 9e9), "characters that are not allowed"),
        (("token", 9e9, "me", {"a b": "MARKER"}), "must consist of letters"),
    ],
)
def test_a_function_that_returns_something_else_is_one_sentence(
    found: object, message: str
) -> None:
    with pytest.raises(AuthenticationFailed, match=message) as failure:
        provided(found, {})
    assert "MARKER" not in str(failure.value)


def test_a_function_that_fails_may_succeed_later() -> None:
    def fail() -> tuple[str, float]:
        raise OSError("MARKER")

    with pytest.raises(ConnectionLost, match="oauth_cb raised OSError") as failure:
        asyncio.run(source_of(oauth_cb=fail).token())
    assert "MARKER" not in str(failure.value)


# -------------------------------------------------------------------------------------- properties


def test_the_names_of_java_and_of_librdkafka() -> None:
    jaas = (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        f'clientId="me" clientSecret="{SECRET}" scope="kafka" extension_logicalCluster="lkc-1";'
    )
    with IdentityProvider(answer(access_token="abc", expires_in=300)) as identity:
        forms: list[dict[str, Any]] = [
            {"sasl_jaas_config": jaas},
            {
                "sasl_oauthbearer_client_credentials_client_id": "me",
                "sasl_oauthbearer_client_credentials_client_secret": SECRET,
                "sasl_oauthbearer_scope": "kafka",
                "sasl_oauthbearer_extensions": "logicalCluster=lkc-1",
            },
            {
                "sasl_oauthbearer_method": "oidc",
                "sasl_oauthbearer_client_id": "me",
                "sasl_oauthbearer_client_secret": SECRET,
                "sasl_oauthbearer_scope": "kafka",
                "sasl_oauthbearer_extensions": "logicalCluster=lkc-1",
            },
        ]
        for form in forms:
            source = source_of(sasl_oauthbearer_token_endpoint_url=identity.url, **form)
            found = asyncio.run(source.token())
            assert (found.value, found.extensions) == ("abc", {"logicalCluster": "lkc-1"})
        first, *others = identity.requests
        assert all(each == first for each in others)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({}, r"set sasl\.oauthbearer\.token\.endpoint\.url, or pass"),
        ({"sasl_oauthbearer_token_endpoint_url": "https://a/"}, r"needs .*client\.id and"),
        ({"sasl_oauthbearer_token_endpoint_url": "ldap://a/"}, "must be a URL with https, http"),
        ({"sasl_oauthbearer_token_endpoint_url": "file://host/x"}, "must be a URL with https"),
        ({"sasl_jaas_config": 'm required unsecuredLoginStringClaim_sub="me";'}, "unsecured token"),
        ({"sasl_oauthbearer_extensions": "a"}, "must look like key=value"),
        ({"sasl_oauthbearer_extensions": "auth=x"}, "must consist of letters"),
        ({"enable_sasl_oauthbearer_unsecure_jwt": "true"}, "unsecured tokens are not supported"),
        ({"sasl_login_callback_handler_class": "com.example.Mine"}, "Invalid value com.example"),
    ],
)
def test_incomplete_properties_are_refused(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        source_of(**keywords)


# ---------------------------------------------------------------------------------------- messages


def test_the_message_of_rfc_7628() -> None:
    token = BearerToken("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==", 0.0)
    assert initial_response(token) == (
        b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01"
    )
    extended = BearerToken("abc", 0.0, {"traceId": "1 2", "b": "3"})
    assert initial_response(extended) == b"n,,\x01auth=Bearer abc\x01traceId=1 2\x01b=3\x01\x01"


@pytest.mark.parametrize("key", ["", "a1", "auth", "a=b", "ä"])
def test_names_of_extensions_are_letters(key: str) -> None:
    with pytest.raises(TokenError, match="must consist of letters"):
        initial_response(BearerToken("abc", 0.0, {key: "1"}))


@pytest.mark.parametrize("value", ["", "\x01", "ä", "a\x00"])
def test_values_of_extensions_are_printable(value: str) -> None:
    with pytest.raises(TokenError, match="not printable ASCII"):
        initial_response(BearerToken("abc", 0.0, {"a": value}))


def test_an_error_of_the_broker_is_acknowledged_once() -> None:
    class Source:
        async def token(self) -> BearerToken:
            return BearerToken("abc", 0.0)

    async def run() -> None:
        exchange = OAuthBearer(Source()).start()
        await exchange.first()
        assert await exchange.respond(b'{"status":"invalid_token"}') == ACKNOWLEDGEMENT
        with pytest.raises(AuthenticationFailed, match="rejected the token: invalid token"):
            await exchange.respond(b'{"status":"invalid_token"}')
        exchange = OAuthBearer(Source()).start()
        await exchange.first()
        assert await exchange.respond(b"") is None

    asyncio.run(run())


@pytest.mark.parametrize(
    ("message", "phrase"),
    [
        ('{"status":"invalid_token"}', "invalid token"),
        (
            '{"status":"insufficient_scope","scope":"kafka"}',
            "insufficient scope (required scope: kafka)",
        ),
        ("Authentication failed", "Authentication failed"),
        ("[]", "[]"),
        ('{"status":5}', '{"status":5}'),
    ],
)
def test_errors_in_json_become_a_phrase(message: str, phrase: str) -> None:
    assert rejection(message) == phrase


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
