"""SASL on the broker's listeners: what unauthenticated clients may send, and how they fail.

A connection to a SASL listener has an `Authentication` until its client is authenticated, and
longer if its session has a limited lifetime (connections.max.reauth.ms, credentials that expire).
Every frame passes through its `admits`. All other connections have none, which costs one comparison
per request.

Bounds on clients that are not authenticated:
  - a request has at most sasl.server.max.receive.size bytes, and large ones of all such clients
    together at most `STRANGERS_BYTES` of memory (`StrangerMemory`);
  - the authentication takes at most `AUTHENTICATION_TIMEOUT_S`, which the server's sweep checks;
  - a failed attempt is answered after connection.failed.authentication.delay.ms, and the connection
    is closed. It serves nothing meanwhile."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ottla.base.config.broker import BrokerConfig
from ottla.base.config.sasl_settings import SaslSettings
from ottla.base.errors import ErrorCode
from ottla.base.ports import Piece
from ottla.broker.context import RequestContext, Response
from ottla.broker.ports import Threads, TimeSource
from ottla.broker.router import RequestRejected
from ottla.broker.sasl_mechanisms import MECHANISMS, MechanismPorts
from ottla.core.security.principal import Principal
from ottla.core.security.sasl import (
    Dialogue,
    DialogueError,
    OfferedMechanism,
    Rejected,
    SessionExpired,
    State,
    Step,
    TokenAnswer,
)
from ottla.wire import schema
from ottla.wire.api import Api
from ottla.wire.frame import MIN_FRAME_BYTES, FrameMemory, FrameReader, FrameRefused, check_stranger

if TYPE_CHECKING:
    from ottla.wire.messages.sasl_authenticate import SaslAuthenticateResponseDict
    from ottla.wire.messages.sasl_handshake import SaslHandshakeResponseDict

AUTHENTICATION_TIMEOUT_S = 10.0
"""Time limit for an authentication, from the first byte to the last."""
STRANGERS_BYTES = 16 * 1024 * 1024
"""Memory for large requests of the clients of a listener that are not authenticated."""

_unpack_head = struct.Struct(">hh").unpack_from
_pack_size = struct.Struct(">i").pack


class StrangerMemory:
    """The request memory for clients that are not authenticated: small requests only.

    The memory of a large request is taken at once, so that a request never waits for memory between
    two of its parts. It counts against the broker's budget, too."""

    def __init__(self, memory: FrameMemory, max_frame_bytes: int, min_frame_bytes: int) -> None:
        self._memory = memory
        self._min_frame_bytes = min_frame_bytes
        self._held: dict[FrameReader, int] = {}
        self.used_bytes = 0
        """Sum of the bytes held."""
        self.ordinary_frame_bytes = max_frame_bytes

    @property
    def now(self) -> float:
        return self._memory.now

    @property
    def shared(self) -> memoryview:
        return self._memory.shared

    @property
    def window(self) -> memoryview:
        return self._memory.window

    @property
    def peek(self) -> memoryview:
        return self._memory.peek

    def check(self, size: int, head: bytes) -> bool:
        check_stranger(size, head, self._min_frame_bytes, self.ordinary_frame_bytes)
        return True

    def take(self, owner: FrameReader, size_bytes: int) -> bool:
        if self.used_bytes and self.used_bytes + size_bytes > STRANGERS_BYTES:
            raise FrameRefused("too many clients that are not authenticated send large requests")
        if not self._memory.take(owner, size_bytes):
            return False
        self._held[owner] = size_bytes
        self.used_bytes += size_bytes
        return True

    def release(self, owner: FrameReader, size_bytes: int) -> None:
        self.forget(owner)
        self._memory.release(owner, size_bytes)

    def forget(self, owner: FrameReader) -> None:
        """Stop to count what a reader holds, because its client is authenticated."""
        self.used_bytes -= self._held.pop(owner, 0)

    def charge(self, size_bytes: int) -> None:
        self._memory.charge(size_bytes)

    def capacity(self, total_bytes: int, filled_bytes: int) -> int:
        return total_bytes

    def take_buffer(self, capacity: int) -> bytearray:
        return self._memory.take_buffer(capacity)

    def give_buffer(self, buffer: bytearray) -> None:
        self._memory.give_buffer(buffer)


class AuthenticatedServer(Protocol):
    """The server of a connection, which counts and logs."""

    @property
    def request_memory(self) -> FrameMemory: ...

    def report_authentication(self, connection: Any, *, is_repeated: bool) -> None: ...

    def report_failed_authentication(
        self, connection: Any, reason: str, *, is_repeated: bool
    ) -> None: ...

    def report_expired_session(self) -> None: ...


class AuthenticatedConnection(Protocol):
    """A connection to a SASL listener."""

    @property
    def reader(self) -> FrameReader: ...

    @property
    def listener(self) -> str: ...

    @property
    def server(self) -> AuthenticatedServer: ...

    def authenticated(self, principal: Principal, *, is_limited: bool) -> None: ...

    def finish(self) -> None: ...

    def respond_later(
        self, context: RequestContext, response: Coroutine[Any, Any, Any]
    ) -> None: ...


class Ports(MechanismPorts, Threads, TimeSource, Protocol):
    """The parts of a broker that authentication uses."""


class _Offer(NamedTuple):
    """The settings of a listener, and what is created from them."""

    settings: SaslSettings
    mechanisms: Mapping[str, OfferedMechanism]
    memory: StrangerMemory
    raw_memory: StrangerMemory
    """Memory for tokens without a header, which may be shorter than any request."""


class SaslListeners:
    """The SASL listeners of a broker. Changed settings apply to new connections."""

    def __init__(self, broker: Ports, config: BrokerConfig) -> None:
        self._broker = broker
        self._settings = config.sasl_settings
        self._offers: dict[str, _Offer] = {}

    def use_config(self, config: BrokerConfig) -> None:
        """Use changed properties."""
        self._settings = config.sasl_settings

    def open(self, connection: AuthenticatedConnection) -> Authentication | None:
        """Return the authentication of a new connection, or None if its listener has no SASL."""
        name = connection.listener
        settings = self._settings.get(name)
        if settings is None:
            return None
        offer = self._offers.get(name)
        if offer is None or offer.settings != settings:
            memory = connection.server.request_memory
            offer = self._offers[name] = _offer(settings, self._broker, memory)
        return Authentication(connection, offer, self._broker)


def _offer(settings: SaslSettings, broker: Ports, memory: FrameMemory) -> _Offer:
    return _Offer(
        settings,
        {
            each.name: OfferedMechanism(
                MECHANISMS[each.name](each, broker), each.max_reauth_ms / 1000
            )
            for each in settings.mechanisms
        },
        StrangerMemory(memory, settings.max_receive_bytes, MIN_FRAME_BYTES),
        StrangerMemory(memory, settings.max_receive_bytes, 0),
    )


class Authentication:
    """The authentication of the client of one connection."""

    __slots__ = ("_broker", "_connection", "_dialogue", "_offer", "deadline")

    def __init__(self, connection: AuthenticatedConnection, offer: _Offer, broker: Ports) -> None:
        self._connection = connection
        self._offer = offer
        self._broker = broker
        self._dialogue = Dialogue(offer.mechanisms)
        self.deadline = float("inf")
        """Time when the connection is closed, unless the client is authenticated before."""
        connection.reader.use_memory(offer.memory)

    # ------------------------------------------------------------------------ from the connection

    def begin(self) -> None:
        """Start the time limit, because the connection is now read."""
        self.deadline = self._broker.clock.monotonic() + AUTHENTICATION_TIMEOUT_S

    def admits(self, frame: memoryview, ready: list[Piece]) -> bool:
        """Return whether a frame is a request to be served.

        Args:
            frame: The frame without its size.
            ready: Gets the response if the frame is a token without a header.

        Raises:
            RequestRejected: The client may not send this request now.
        """
        dialogue = self._dialogue
        if dialogue.state is State.RAW_TOKENS:
            self._raw_token(bytes(frame), ready)
            return False
        api_key, version = _unpack_head(frame)
        is_served = api_key != Api.API_VERSIONS or version in schema.versions(api_key)
        try:
            dialogue.check(api_key, is_served, self._broker.clock.monotonic())
        except DialogueError as error:
            if isinstance(error, SessionExpired):
                self._connection.server.report_expired_session()
            raise RequestRejected(str(error)) from None
        return True

    def timed_out(self) -> None:
        """Report that the deadline has passed."""
        self._report_failure(f"it took longer than {AUTHENTICATION_TIMEOUT_S:g} seconds")

    # ----------------------------------------------------------------------------- from handlers

    def handshake(self, version: int, mechanism: str) -> Response[SaslHandshakeResponseDict]:
        """Return the response to SaslHandshake."""
        now = self._broker.clock.monotonic()
        answer = self._dialogue.handshake(version, mechanism, now)
        response: SaslHandshakeResponseDict = {
            "error_code": answer.error_code,
            "mechanisms": list(answer.mechanisms),
        }
        match self._dialogue.state:
            case State.FAILED:
                self._report_failure(f"the mechanism {mechanism[:100]!r} is not enabled")
                return self._fail(response)
            case State.RAW_TOKENS:
                self._connection.reader.use_memory(self._offer.raw_memory)
        if self._dialogue.state is not State.AUTHENTICATED:
            self.deadline = min(self.deadline, now + AUTHENTICATION_TIMEOUT_S)
        return response

    def authenticate(self, token: bytes) -> Response[SaslAuthenticateResponseDict]:
        """Return the response to SaslAuthenticate."""
        dialogue = self._dialogue
        if dialogue.state is not State.TOKENS:
            return _illegal_state()
        step = dialogue.step(token)
        if isinstance(step, Awaitable):
            return self._authenticate_later(step)
        answer = self._stepped(step)
        response = _response(answer)
        return self._fail(response) if answer.error_code else response

    async def _authenticate_later(self, step: Awaitable[Step]) -> SaslAuthenticateResponseDict:
        answer = self._stepped(await step)
        response = _response(answer)
        return await self._fail(response) if answer.error_code else response

    def _raw_token(self, token: bytes, ready: list[Piece]) -> None:
        step = self._dialogue.step(token)
        if isinstance(step, Awaitable):
            if isinstance(step, Coroutine):
                step.close()
            step = Rejected("delegation tokens need version 1 of SaslHandshake")
        answer = self._stepped(step)
        if answer.error_code:
            context = RequestContext(Api.SASL_AUTHENTICATE, 0, 0, None, "", "")
            self._connection.respond_later(context, self._fail(None))
        else:
            ready.append(_pack_size(len(answer.token)) + answer.token)

    def _stepped(self, step: Step) -> TokenAnswer:
        dialogue, connection, clock = self._dialogue, self._connection, self._broker.clock
        is_repeated = dialogue.is_reauthentication
        answer = dialogue.stepped(step, clock.monotonic(), clock.time_ms() / 1000)
        if answer.reason:
            self._report_failure(answer.reason, is_repeated)
        if dialogue.state is State.AUTHENTICATED:
            assert dialogue.principal is not None
            connection.authenticated(dialogue.principal, is_limited=dialogue.is_limited)
            connection.server.report_authentication(connection, is_repeated=is_repeated)
            self.deadline = float("inf")
            self._offer.memory.forget(connection.reader)
            self._offer.raw_memory.forget(connection.reader)
        return answer

    async def _fail(self, response: Any) -> Any:
        """Return a response after the delay for failures; the connection is closed after it."""
        await asyncio.sleep(self._offer.settings.failure_delay_ms / 1000)
        self._connection.finish()
        return response

    def _report_failure(self, reason: str, is_repeated: bool | None = None) -> None:
        dialogue = self._dialogue
        if is_repeated is None:
            is_repeated = dialogue.is_reauthentication
        if dialogue.mechanism:
            reason = f"{reason} ({dialogue.mechanism})"
        self._connection.server.report_failed_authentication(
            self._connection, reason, is_repeated=is_repeated
        )


def _response(answer: TokenAnswer) -> SaslAuthenticateResponseDict:
    return {
        "error_code": answer.error_code,
        "error_message": answer.message,
        "auth_bytes": answer.token,
        "session_lifetime_ms": answer.session_lifetime_ms,
    }


def _illegal_state() -> SaslAuthenticateResponseDict:
    return {
        "error_code": ErrorCode.ILLEGAL_SASL_STATE,
        "error_message": "SaslAuthenticate request received after successful authentication",
        "auth_bytes": b"",
    }
