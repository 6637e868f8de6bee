"""The SASL dialogue of a connection, as Kafka's brokers conduct it.

    state        the client may send                        the next state
    VERSIONS     ApiVersions once, or SaslHandshake         HANDSHAKE, or as for HANDSHAKE
    HANDSHAKE    SaslHandshake                              TOKENS, or RAW_TOKENS for version 0
    TOKENS       SaslAuthenticate                           TOKENS, AUTHENTICATED
    RAW_TOKENS   tokens without a request header            RAW_TOKENS, AUTHENTICATED
    AUTHENTICATED  any request                              TOKENS after SaslHandshake (KIP-368)
    FAILED       nothing: the connection is closed          none

Any other request raises `DialogueError`, and a step that fails leads to FAILED. A session has a
limited lifetime if the credentials expire or if `connections.max.reauth.ms` is set. Its client must
authenticate again before the end, at most once per second, with the same mechanism and as the same
principal. The next request after the end raises `DialogueError`.

Times are in seconds: `now` on a monotonic clock, `wall_time` since 1970.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, Protocol, TypeAlias

from ottla.base.errors import ErrorCode
from ottla.core.security.principal import Principal
from ottla.wire.api import Api

MIN_REAUTHENTICATION_INTERVAL_S = 1.0


class Challenge(NamedTuple):
    """The next message of the mechanism; the client must answer it."""

    message: bytes
    failure: str = ""
    """Why the authentication will fail, for the log; '' if it may still succeed."""


class Authenticated(NamedTuple):
    """The client has proved who it is."""

    principal: Principal
    message: bytes = b""
    """Last message to the client."""
    expires_at: float | None = None
    """Time when the credentials expire, in seconds since 1970; None for never."""


class Rejected(NamedTuple):
    """The client has not proved who it is."""

    reason: str
    """Description for the log, without a period; '' if a challenge has already given it."""
    message: str = ""
    """Description for the client; '' for Kafka's text, which does not reveal anything."""


Step: TypeAlias = Challenge | Authenticated | Rejected


class Exchange(Protocol):
    """The messages of one mechanism during one authentication."""

    def step(self, message: bytes) -> Step | Awaitable[Step]:
        """Return the answer to a message of the client, or an awaitable of it. Never raises."""


class Mechanism(Protocol):
    """A mechanism of a listener."""

    @property
    def may_wait(self) -> bool:
        """Whether steps may be awaitables, because they need a thread or the network."""

    def start(self) -> Exchange:
        """Return a new exchange."""


class OfferedMechanism(NamedTuple):
    """A mechanism, and the time after which its clients must authenticate again."""

    mechanism: Mechanism
    max_session_s: float = 0.0
    """0 for no limit."""


class DialogueError(Exception):
    """The client sent a request that is not allowed now. The message says why, for the log."""


class SessionExpired(DialogueError):
    """The client did not authenticate again in time."""


class State(Enum):
    """States of the dialogue."""

    VERSIONS = auto()
    HANDSHAKE = auto()
    TOKENS = auto()
    RAW_TOKENS = auto()
    AUTHENTICATED = auto()
    FAILED = auto()


class HandshakeAnswer(NamedTuple):
    """The contents of a SaslHandshake response."""

    error_code: ErrorCode
    mechanisms: tuple[str, ...]


class TokenAnswer(NamedTuple):
    """The contents of a SaslAuthenticate response."""

    error_code: ErrorCode
    message: str | None = None
    token: bytes = b""
    session_lifetime_ms: int = 0
    reason: str = ""
    """Why the authentication fails, for the log; '' if it does not, or if that has been logged."""


@dataclass(frozen=True, slots=True)
class _Failing:
    """An exchange that rejects every message."""

    message: str

    def step(self, message: bytes) -> Step:
        return Rejected(self.message, self.message)


class Dialogue:
    """The state of one connection's dialogue."""

    __slots__ = (
        "_exchange",
        "_offered",
        "_principal",
        "_reauthenticated_at",
        "_session_ends_at",
        "mechanism",
        "state",
    )

    def __init__(self, offered: Mapping[str, OfferedMechanism]) -> None:
        """Begin a dialogue.

        Args:
            offered: The mechanisms of the listener, by name.
        """
        self._offered = offered
        self._exchange: Exchange | None = None
        self._principal: Principal | None = None
        self._session_ends_at: float | None = None
        self._reauthenticated_at: float | None = None
        self.mechanism = ""
        """Name of the mechanism in use."""
        self.state = State.VERSIONS

    @property
    def principal(self) -> Principal | None:
        """The authenticated client, or None before the first authentication."""
        return self._principal

    @property
    def is_reauthentication(self) -> bool:
        """Whether the client has been authenticated before."""
        return self._principal is not None

    @property
    def is_limited(self) -> bool:
        """Whether the session ends at some time."""
        return self._session_ends_at is not None

    def check(self, api_key: int, is_served: bool, now: float) -> None:
        """Check whether the client may send a request, and note that it did.

        Args:
            api_key: API of the request.
            is_served: Whether the broker supports its version. The client may repeat ApiVersions
                in another version if not.
            now: The current time.

        Raises:
            DialogueError: The request is not allowed. The connection must be closed.
        """
        if self.state is State.AUTHENTICATED:
            ends_at = self._session_ends_at
            if ends_at is not None and now > ends_at and not self._may_begin_again(api_key, now):
                raise SessionExpired(
                    "the client did not authenticate again before its session ended"
                )
            return
        if self.state is State.VERSIONS and api_key == Api.API_VERSIONS:
            self.state = State.HANDSHAKE if is_served else State.VERSIONS
            return
        expected = {
            State.VERSIONS: Api.SASL_HANDSHAKE,
            State.HANDSHAKE: Api.SASL_HANDSHAKE,
            State.TOKENS: Api.SASL_AUTHENTICATE,
        }
        if expected.get(self.state) != api_key:
            raise DialogueError(f"the client sent {_name(api_key)} before it was authenticated")

    def _may_begin_again(self, api_key: int, now: float) -> bool:
        last = self._reauthenticated_at
        return api_key == Api.SASL_HANDSHAKE and (
            last is None or now - last >= MIN_REAUTHENTICATION_INTERVAL_S
        )

    def handshake(self, version: int, mechanism: str, now: float) -> HandshakeAnswer:
        """Return the answer to SaslHandshake, which selects a mechanism."""
        names = tuple(self._offered)
        if self.state is State.AUTHENTICATED:
            if (
                version == 0
                or not self.is_limited
                or not self._may_begin_again(Api.SASL_HANDSHAKE, now)
            ):
                return HandshakeAnswer(ErrorCode.ILLEGAL_SASL_STATE, ())
            self._reauthenticated_at = now
        found = self._offered.get(mechanism)
        # Version 0 is older than the mechanisms that wait, so its tokens never do.
        if found is None or (version == 0 and found.mechanism.may_wait):
            self.state = State.FAILED
            return HandshakeAnswer(ErrorCode.UNSUPPORTED_SASL_MECHANISM, names)
        if self.is_reauthentication and mechanism != self.mechanism:
            self._exchange = _Failing(
                f"SASL mechanism {mechanism!r} requested by client is not supported for "
                f"re-authentication of mechanism {self.mechanism!r}"
            )
        else:
            self._exchange = found.mechanism.start()
            self.mechanism = mechanism
        self.state = State.RAW_TOKENS if version == 0 else State.TOKENS
        return HandshakeAnswer(ErrorCode.NONE, names)

    def step(self, token: bytes) -> Step | Awaitable[Step]:
        """Pass a token to the mechanism. Pass the result to `stepped`, once it is there."""
        assert self._exchange is not None
        return self._exchange.step(token)

    def stepped(self, step: Step, now: float, wall_time: float) -> TokenAnswer:
        """Return the answer to SaslAuthenticate, or to a token without a header."""
        if isinstance(step, Challenge):
            return TokenAnswer(ErrorCode.NONE, token=step.message, reason=step.failure)
        self._exchange = None
        if isinstance(step, Authenticated):
            step = self._checked(step, wall_time)
        if isinstance(step, Rejected):
            self.state = State.FAILED
            text = step.message or self._failure()
            return TokenAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED, text, reason=step.reason)
        self._principal = step.principal
        self.state = State.AUTHENTICATED
        lifetime_ms = self._lifetime_ms(step, wall_time)
        self._session_ends_at = None if lifetime_ms is None else now + lifetime_ms / 1000
        return TokenAnswer(ErrorCode.NONE, token=step.message, session_lifetime_ms=lifetime_ms or 0)

    def _checked(self, step: Authenticated, wall_time: float) -> Authenticated | Rejected:
        if step.expires_at is not None and step.expires_at <= wall_time:
            return Rejected("the credentials have expired")
        if self._principal is not None and step.principal != self._principal:
            message = (
                f"Cannot change principals during re-authentication from {self._principal} to "
                f"{step.principal}"
            )
            return Rejected(message, message)
        return step

    def _lifetime_ms(self, step: Authenticated, wall_time: float) -> int | None:
        limits = []
        if step.expires_at is not None:
            limits.append(step.expires_at - wall_time)
        if max_session_s := self._offered[self.mechanism].max_session_s:
            limits.append(max_session_s)
        return max(0, int(min(limits) * 1000)) if limits else None

    def _failure(self) -> str:
        what = "re-authentication" if self.is_reauthentication else "authentication"
        return (
            f"Authentication failed during {what} due to invalid credentials with SASL mechanism "
            f"{self.mechanism}"
        )


def _name(api_key: int) -> str:
    try:
        return Api(api_key).name
    except ValueError:
        return f"API {api_key}"
