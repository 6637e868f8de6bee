"""The listeners and the state that all connections share: limits, budgets, counters, the sweep.

This module bounds what one client can do to the others: the number and the rate of connections
(`admission.py`); how long a connection may be idle; the memory of requests and responses
(`memory.py`); what clients with quotas may use (`quotas.py`); and the log lines that clients can
cause (`log_limit.py`).
One periodic sweep does the work that would otherwise need a timer per connection."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, cast

from ottla.broker.admission import Admission
from ottla.broker.authentication import SaslListeners
from ottla.broker.authorization import Access, Authorization
from ottla.broker.connection import Authentication, Connection
from ottla.broker.connection_rate import UNLIMITED
from ottla.broker.held_connections import HeldConnections
from ottla.broker.listening import BindListener, bind_listener, file_limit
from ottla.broker.log_limit import LogLimiter
from ottla.broker.memory import RequestMemory, ResponseMemory
from ottla.broker.produce_fast_path import ProduceFastPath
from ottla.broker.quotas import ClientQuotas
from ottla.broker.router import HandlerPorts, Router
from ottla.broker.tls_acceptor import TlsAcceptor
from ottla.broker.tls_contexts import TlsContexts

_logger = logging.getLogger(__name__)
T = TypeVar("T")

MAX_DEFAULT_BUDGET_BYTES = 512 * 1024 * 1024
"""Default budget for requests, and the same for responses; at most a quarter of the memory."""
FILES_KEPT_FREE = 0.25
"""Share of the open-file limit that connections leave to the logs."""
MIN_BACKLOG = 512
"""Length of the accept queue. With Kafka's 50, clients wait a second when many connect at once."""
STALLED_FRAME_TIMEOUT_S = 30.0
"""Time limit for receiving a large request while other connections wait for memory."""
CLOSE_TIMEOUT_S = 10.0
"""Time that a client has to read its last responses when its connection is closed."""
SWEEPS_PER_IDLE_TIME = 10
MIN_SWEEP_INTERVAL_S = 0.1
MAX_SWEEP_INTERVAL_S = 5.0


class Listener(NamedTuple):
    """A listener to bind, or one that is bound."""

    name: str
    host: str
    """Empty for every address of the machine."""
    port: int
    """0 for any free port."""


@dataclass(frozen=True)
class ServerConfig:
    """Network settings, named like Kafka's properties; -1 means a default of ours or the system's.

    `Server.config` may be replaced while the server runs. New limits on connections, their rate and
    their idle time apply at once."""

    listeners: tuple[Listener, ...]
    socket_request_max_bytes: int = 104_857_600
    queued_max_request_bytes: int = -1
    connections_max_idle_ms: int = 600_000
    max_connections: int = UNLIMITED
    max_connections_per_ip: int = UNLIMITED
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    max_connection_creation_rate: int = UNLIMITED
    max_connections_of_listener: Mapping[str, int] = field(default_factory=dict)
    max_connection_creation_rate_of_listener: Mapping[str, int] = field(default_factory=dict)
    inter_broker_listener: str | None = None
    socket_send_buffer_bytes: int = -1
    socket_receive_buffer_bytes: int = -1
    socket_listen_backlog_size: int = 50
    max_unsent_response_bytes: int = -1

    @property
    def protected_listener(self) -> str | None:
        """The listener for other brokers, unless it is the only one."""
        return self.inter_broker_listener if len(self.listeners) > 1 else None


class Server:
    """The listeners of a broker and its connections."""

    def __init__(
        self,
        broker: HandlerPorts,
        router: Router,
        config: ServerConfig,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        produce_fast_path: Callable[[], ProduceFastPath] | None = None,
        bind: BindListener = bind_listener,
        tls: TlsContexts | None = None,
        sasl: SaslListeners | None = None,
        authorization: Authorization | None = None,
        quotas: ClientQuotas | None = None,
    ) -> None:
        """Create a server; `start` binds its listeners.

        Args:
            broker: Passed to the handlers.
            router: Finds the handler of each request.
            config: Network settings.
            monotonic: Source of monotonic time.
            produce_fast_path: Creates a connection's fast path for produce requests
                (produce_fast_path.py); None to decode all of them.
            bind: Binds a listener; simulations pass their own.
            tls: The TLS contexts of the listeners that use it; None if none does.
            sasl: The listeners that use SASL; None if none does.
            authorization: Decides what clients may do; None if they may do everything.
            quotas: Decides how much clients may use; None if they may use everything.
        """
        self.broker = broker
        self.produce_fast_path = produce_fast_path
        self.router = router
        self.config = config
        self.connections_accepted = 0
        self.connections_refused = 0
        self.connections_closed_abusive = 0
        self.connections_closed_idle = 0
        self.handshakes_failed = 0
        self.authentications_succeeded = 0
        self.authentications_failed = 0
        self.reauthentications_succeeded = 0
        self.reauthentications_failed = 0
        self.sessions_expired = 0
        """Connections closed because their clients did not authenticate again in time."""
        self.requests = 0
        self.requests_failed = 0
        """Requests that failed because of a bug in the broker."""
        self.bytes_in = 0
        self.bytes_out = 0
        self.listeners: list[Listener] = []
        """The bound listeners, with their actual ports."""
        self.request_memory = RequestMemory(
            _budget(config.queued_max_request_bytes),
            config.socket_request_max_bytes,
            self.schedule,
        )
        self.response_memory = ResponseMemory(_budget(config.max_unsent_response_bytes))
        self._monotonic = monotonic
        self._bind = bind
        self._tls = tls
        self._sasl = sasl
        self._authorization = authorization
        self._quotas = quotas
        self.client_quotas: ClientQuotas | None = None
        """The quotas of clients; None while no client has one."""
        self.admission = Admission(lambda: self.config, monotonic, self._call_later, quotas)
        self._throttled = HeldConnections(monotonic, self._call_later, Connection.throttle_ended)
        self.quotas_changed()
        self._abuse_log = LogLimiter(_logger, monotonic)
        self._failure_log = LogLimiter(_logger, monotonic)
        self._authentication_log = LogLimiter(_logger, monotonic)
        self._servers: list[asyncio.Server | TlsAcceptor] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._to_flush: list[Connection] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._emptied: asyncio.Event | None = None

    @property
    def connections(self) -> dict[Connection, None]:
        return self.admission.connections

    @property
    def connections_throttled(self) -> int:
        """Number of connections that are not read because their clients are over a quota."""
        return len(self._throttled)

    @property
    def connections_open(self) -> int:
        return len(self.connections)

    @property
    def ports(self) -> dict[str, int]:
        return {listener.name: listener.port for listener in self.listeners}

    # ------------------------------------------------------------------------- start and stop

    async def start(self) -> None:
        """Bind every listener.

        Raises:
            UserError: A listener cannot be bound; the message says why.
        """
        self._loop = asyncio.get_running_loop()
        self.request_memory.now = self._monotonic()
        self.admission.max_files = int(file_limit() * (1 - FILES_KEPT_FREE))
        try:
            for listener in self.config.listeners:
                await self._listen(listener)
        except BaseException:
            self._close_listeners()
            raise
        self._sweep_later()

    async def _listen(self, listener: Listener) -> None:
        assert self._loop is not None
        sockets = await self._bind(
            listener.host,
            listener.port,
            self.config.socket_send_buffer_bytes,
            self.config.socket_receive_buffer_bytes,
        )
        backlog = max(self.config.socket_listen_backlog_size, MIN_BACKLOG)
        for each in sockets:
            sock = cast("socket.socket", each)
            if self._tls is not None and self._tls.has(listener.name):
                self._servers.append(TlsAcceptor(self, listener.name, sock, backlog, self._tls))
                continue
            self._servers.append(
                await self._loop.create_server(
                    lambda: Connection(self, listener.name), sock=sock, backlog=backlog
                )
            )
        port = sockets[0].getsockname()[1]
        self.listeners.append(listener._replace(port=port))
        _logger.info("listening on %s://%s:%d", listener.name, listener.host, port)

    async def stop(self, grace_s: float) -> None:
        """Close the listeners, wait up to `grace_s` seconds for requests in progress to be
        answered, then close the remaining connections."""
        self._close_listeners()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self.admission.close()
        self._throttled.close()
        self._emptied = asyncio.Event()
        for connection in list(self.connections):
            connection.finish()
        await self._wait_until_empty(grace_s)
        for connection in list(self.connections):
            connection.abort()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._wait_until_empty(CLOSE_TIMEOUT_S)

    async def _wait_until_empty(self, timeout_s: float) -> None:
        assert self._emptied is not None
        if not self.connections:
            return
        try:
            await asyncio.wait_for(self._emptied.wait(), timeout_s)
        except TimeoutError:
            pass

    def _close_listeners(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()

    # -------------------------------------------------------------------- used by connections

    def admit(self, connection: Connection) -> bool:
        """Count a new connection and return True, or return False if a limit is reached."""
        reason = self.admission.refusal(connection)
        if reason is not None:
            return self._refuse(connection, reason)
        self.connections_accepted += 1
        return True

    def must_wait(self, connection: Connection) -> bool:
        """Return whether an admitted connection must wait because of a limit on new connections. If
        so, its `admitted` is called later, or it is closed."""
        return self.admission.must_wait(connection)

    def throttle(self, connection: Connection, until: float) -> None:
        """Call `throttle_ended` of a connection at a monotonic time."""
        self._throttled.hold(connection, until)

    def quotas_changed(self) -> None:
        """Apply the present client quotas to open connections."""
        quotas = self._quotas
        self.client_quotas = quotas if quotas is not None and quotas.limits_clients else None
        self._throttled.release_all()

    def _refuse(self, connection: Connection, reason: str) -> bool:
        self.connections_refused += 1
        self._abuse_log.log(
            logging.WARNING,
            f"Rejected a connection from {connection.peer} on {connection.listener}: {reason}, "
            "which is the limit",
            about=(connection.peer, reason),
        )
        return False

    def forget(self, connection: Connection) -> None:
        if not self.admission.forget(connection):
            return
        self._throttled.forget(connection)
        self.request_memory.forget(connection)
        self.response_memory.set_held(connection, 0)
        if self._emptied is not None and not self.connections:
            self._emptied.set()

    def report_abuse(self, connection: Connection, reason: str) -> None:
        self.connections_closed_abusive += 1
        self._abuse_log.log(
            logging.WARNING,
            f"Closing the connection from {connection.name()} on {connection.listener}: {reason}",
            about=(connection.peer, reason),
        )

    def report_closing(self, connection: Connection, reason: str) -> None:
        self._abuse_log.log(
            logging.INFO,
            f"Closing the connection from {connection.name()} on {connection.listener}: {reason}",
            about=(connection.peer, reason),
        )

    def report_failure(self, connection: Connection, error: Exception) -> None:
        self.requests_failed += 1
        self._failure_log.log(
            logging.ERROR,
            f"Unexpected error while handling a request from {connection.name()} on "
            f"{connection.listener}; closing the connection",
            exc_info=error,
        )

    def report_handshake_failure(self, connection: Connection, reason: str) -> None:
        self.handshakes_failed += 1
        self._abuse_log.log(
            logging.WARNING,
            f"The TLS handshake with {connection.name()} on {connection.listener} failed: {reason}",
            about=(connection.peer, reason),
        )

    def authentication(self, connection: Connection) -> Authentication | None:
        """Return the SASL dialogue of a new connection, or None if its listener has no SASL."""
        return None if self._sasl is None else self._sasl.open(connection)

    def access(self, connection: Connection) -> Access | None:
        """Return what the principal of a connection may do, or None without an authorizer."""
        if self._authorization is None:
            return None
        return self._authorization.access_of(connection.principal, connection.peer)

    def report_authentication(self, connection: Connection, *, is_repeated: bool) -> None:
        if is_repeated:
            self.reauthentications_succeeded += 1
        else:
            self.authentications_succeeded += 1
        if _logger.isEnabledFor(logging.DEBUG):
            _logger.debug(
                "%s on %s is authenticated as %s",
                connection.name(),
                connection.listener,
                connection.principal,
            )

    def report_failed_authentication(
        self, connection: Connection, reason: str, *, is_repeated: bool
    ) -> None:
        if is_repeated:
            self.reauthentications_failed += 1
        else:
            self.authentications_failed += 1
        self._authentication_log.log(
            logging.WARNING,
            f"The authentication of {connection.name()} on {connection.listener} failed: {reason}",
            about=(connection.peer, reason),
        )

    def report_expired_session(self) -> None:
        self.sessions_expired += 1

    def _call_later(self, delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        assert self._loop is not None
        return self._loop.call_later(delay_s, callback)

    def schedule(self, callback: Callable[[], None]) -> object:
        assert self._loop is not None
        return self._loop.call_soon(callback)

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        assert self._loop is not None
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def flush_soon(self, connection: Connection) -> None:
        """Flush the connection at the end of this iteration of the event loop."""
        if not self._to_flush:
            self.schedule(self._flush)
        self._to_flush.append(connection)

    def _flush(self) -> None:
        due, self._to_flush = self._to_flush, []
        for connection in due:
            connection.flush()

    # ------------------------------------------------------------------------------- the sweep

    def _sweep_later(self) -> None:
        assert self._loop is not None
        interval = self.config.connections_max_idle_ms / 1000 / SWEEPS_PER_IDLE_TIME
        if interval < 0:  # a negative limit disables it, as in Kafka
            interval = MAX_SWEEP_INTERVAL_S
        interval = min(MAX_SWEEP_INTERVAL_S, max(MIN_SWEEP_INTERVAL_S, interval))
        self._sweep_timer = self._loop.call_later(interval, self._sweep_and_repeat)

    def _sweep_and_repeat(self) -> None:
        self.sweep(self._monotonic())
        self._sweep_later()

    def sweep(self, now: float) -> None:
        """Close connections that are idle, stalled, or do not finish closing."""
        self.request_memory.now = now
        self.request_memory.pool.shrink()
        for connection in list(self.connections):
            self._sweep_one(connection, now)

    def _sweep_one(self, connection: Connection, now: float) -> None:
        unsent = connection.unsent_bytes() if connection.is_stuck else 0
        if connection.active or unsent < connection.unsent_seen:
            connection.active = False
            connection.unsent_seen = unsent
            connection.last_active = now
        inactive_s = now - connection.last_active
        idle_s = self.config.connections_max_idle_ms / 1000
        authentication = connection.authentication
        if connection.is_ending:
            if inactive_s >= CLOSE_TIMEOUT_S:
                connection.abort()
        elif authentication is not None and now >= authentication.deadline:
            authentication.timed_out()
            connection.abort()
        elif self._is_stalling_others(connection, now):
            self.report_abuse(
                connection, "other requests wait for memory that its incomplete request holds"
            )
            connection.abort()
        elif 0 <= idle_s <= inactive_s:
            self.connections_closed_idle += 1
            _logger.debug("Closing the connection from %s: idle", connection.name())
            connection.abort()

    def _is_stalling_others(self, connection: Connection, now: float) -> bool:
        reader = connection.reader
        return (
            bool(self.request_memory.waiting)
            and reader.holds_large_frame
            and not reader.bytes_refused
            and now - reader.large_since >= STALLED_FRAME_TIMEOUT_S
        )


def _budget(configured: int) -> int:
    if configured >= 0:
        return configured
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(MAX_DEFAULT_BUDGET_BYTES, memory_bytes // 4)
