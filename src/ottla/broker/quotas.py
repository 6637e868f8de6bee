"""The client quotas of a broker: who is limited, and what each request costs.

    connection ──► ClientQuotas.charge(frame) ──► RequestCharge ──► handler ──► response with
                        │                             ▲                         throttle_time_ms
                        └─► ClientMeter (Rate, …) ────┘                         │
                                                     the connection is not read until then ◄┘

A client over a quota is answered at once, with the time for which it should pause, and its
connection is not read for that time (KIP-219). A broker of a cluster without quotas for clients has
no part in this: connections check one attribute per request.

| quota | what is recorded |
|---|---|
| `producer_byte_rate` | size of Produce requests, when they arrive |
| `consumer_byte_rate` | size of the records in Fetch responses |
| `request_percentage` | time that a request takes on the event loop, at most one window at a time |
| `controller_mutation_rate` | partitions that the controller creates or deletes |
| `connection_creation_rate` | new connections of an address (`broker.admission`) |

Connections of brokers, WriteTxnMarkers and authentication are exempt. A broker is recognized by its
connection (`RequestContext.is_peer`) and its client ID. If brokers do not authenticate, any client
could have both, and is still limited to its byte rates. All connections that share a
quota (`core.quota.precedence`) share one `Rate`. It exists as long as one of them is open, or while
it is among the `MAX_REMEMBERED` last ones that a connection asked for, so a client does not get a
new burst when it reconnects. A change of quotas takes effect on open connections at once.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Generator, Mapping
from math import inf
from types import TracebackType
from typing import Any, NamedTuple, Protocol
from weakref import WeakValueDictionary

from ottla.base.config.broker import BrokerConfig
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.quota import CLIENT_KEYS, QuotaEntity, QuotaKey
from ottla.core.quota.precedence import Quota, QuotaTable
from ottla.core.quota.rate import Rate
from ottla.core.quota.token_bucket import TokenBucket
from ottla.core.security.principal import Principal
from ottla.wire import codec
from ottla.wire.api import Api

MAX_REMEMBERED = 10_000
"""Number of quotas whose use is remembered although no connection uses them."""
MIN_THROTTLE_S = 0.001
"""Shorter throttle times are not worth a pause. The debt adds to the next one."""
FETCH_SHARE = 0.1
"""Part of one window's quota that a fetch may always read. A consumer that is over its quota gets
such pieces, so that several consumers with one quota take turns."""
_BROKER = re.compile(r"broker-\d+")
"""Client IDs of brokers (`broker.peers.peer_client_id`)."""
EXEMPT = frozenset({
    Api.SASL_HANDSHAKE,
    Api.SASL_AUTHENTICATE,
    Api.WRITE_TXN_MARKERS,
    Api.ENVELOPE,
})  # fmt: skip
"""APIs whose requests no quota limits."""


class ClientMeter(NamedTuple):
    """The quotas of one client. A part that is None is not limited."""

    produced: Rate | None
    fetched: Rate | None
    requests: Rate | None
    mutations: TokenBucket | None


class MeteredConnection(Protocol):
    """A connection whose requests are charged."""

    meter_memo: tuple[object, str | None, ClientMeter | None] | None
    """The latest answer: the generation of the quotas, the client ID and the meter."""

    @property
    def principal(self) -> Principal: ...

    @property
    def is_peer(self) -> bool: ...


class RequestCharge:
    """The cost of one request for its client, and the throttle time that results."""

    __slots__ = ("_begun", "_spent_s", "meter", "until")

    def __init__(self, meter: ClientMeter, now: float) -> None:
        self.meter = meter
        self.until = -inf
        """Time until which the connection is not read."""
        self._begun: float | None = now if meter.requests is not None else None
        self._spent_s = 0.0

    def hold(self, throttle_s: float, now: float) -> None:
        """Require a throttle time."""
        if throttle_s > 0:
            self.until = max(self.until, now + throttle_s)

    @property
    def allows_fast_path(self) -> bool:
        """Whether the response to a Produce request has no throttle time, whatever it costs."""
        return self.meter.requests is None and self.until == -inf

    @property
    def measures_time(self) -> bool:
        return self.meter.requests is not None

    def begin(self, now: float) -> None:
        """Start to measure the time that the request takes on the event loop."""
        if self.meter.requests is not None:
            self._begun = now

    def end(self, now: float) -> None:
        """Stop to measure the time."""
        if self._begun is not None:
            self._spent_s += now - self._begun
            self._begun = None

    def throttled(self, body: dict[str, Any], now: float) -> dict[str, Any]:
        """Record the time that the request took, and return the response with its throttle time.

        Args:
            body: The response. It may have a throttle time from the controller already.
            now: The current time.
        """
        self.end(now)
        rate = self.meter.requests
        if rate is not None and self._spent_s:
            self.hold(rate.record(self._spent_s, now), now)
            self._spent_s = 0.0
        self.hold(body.get("throttle_time_ms", 0) / 1000, now)
        left_s = self.until - now
        if left_s < MIN_THROTTLE_S:
            return body
        return {**body, "throttle_time_ms": round(left_s * 1000)}

    # ------------------------------------------------------------------------------------ fetches

    def refuses_fetch(self, now: float) -> bool:
        """Return whether a fetch gets no records because its client is over the quota.

        A debt of up to one window does not refuse it: the client is throttled by its connections
        instead, which is fair to all of them."""
        rate = self.meter.fetched
        if rate is None:
            return False
        debt_s = rate.throttle_s(now)
        if debt_s <= rate.window_s:
            return False
        self.hold(debt_s, now)
        return True

    def max_fetch_bytes(self, now: float) -> int | None:
        """Return how much a fetch may read, or None if its client is not limited."""
        rate = self.meter.fetched
        if rate is None:
            return None
        return max(1, int(rate.available(now)), int(rate.limit * rate.window_s * FETCH_SHARE))

    def record_fetched(self, size_bytes: int, now: float) -> None:
        """Record the size of the records in the response."""
        if self.meter.fetched is not None and size_bytes:
            self.hold(self.meter.fetched.record(size_bytes, now), now)


class MutationQuota:
    """The quota of a client for changes of partitions (KIP-599)."""

    def __init__(
        self, bucket: TokenBucket, monotonic: Callable[[], float], *, is_strict: bool
    ) -> None:
        """Create the quota of one request.

        Args:
            bucket: The tokens of the client.
            monotonic: Source of monotonic time.
            is_strict: Whether changes over the quota are refused, because the version of the
                request has an error code for it. Otherwise the client is only throttled.
        """
        self._bucket = bucket
        self._monotonic = monotonic
        self._is_strict = is_strict
        self._has_refused = False

    def admits(self, partitions: int) -> bool:
        """Take a token for each partition, or return False if the quota is used up."""
        now = self._monotonic()
        if self._is_strict and self._bucket.throttle_s(now) > 0:
            self._has_refused = True
            return False
        self._bucket.take(partitions, now)
        return True

    def error(self) -> KafkaError:
        """Return the error of a change that is refused."""
        return KafkaError(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded."
        )

    @property
    def throttle_time_ms(self) -> int:
        """Time until the client may change partitions again, in milliseconds; 0 for a request that
        was not refused although it could have been."""
        if self._is_strict and not self._has_refused:
            return 0
        return round(self._bucket.throttle_s(self._monotonic()) * 1000)


class ClientQuotas:
    """The quotas of all clients of a broker, and their use."""

    def __init__(self, config: BrokerConfig, monotonic: Callable[[], float]) -> None:
        """Create the quotas of a cluster without any.

        Args:
            config: The configuration, with the windows.
            monotonic: Source of monotonic time.
        """
        self.monotonic = monotonic
        self.window_s = float(config.quota_window_size_seconds)
        self._windows = config.quota_window_num
        self._mutation_windows = config.controller_quota_window_num
        self._mutation_window_s = float(config.controller_quota_window_size_seconds)
        self._table = QuotaTable({})
        self._peers_authenticate = False
        self._generation: object = object()
        self._rates: WeakValueDictionary[Quota, Rate] = WeakValueDictionary()
        self._buckets: WeakValueDictionary[Quota, TokenBucket] = WeakValueDictionary()
        self._recent: OrderedDict[Quota, Rate | TokenBucket] = OrderedDict()

    @property
    def limits_clients(self) -> bool:
        """Whether any user or client ID has a quota."""
        return self._table.limits_clients

    def use(self, quotas: Mapping[QuotaEntity, Mapping[QuotaKey, float]]) -> None:
        """Replace all quotas. Those that do not change keep their use."""
        self._table = QuotaTable(dict(quotas))
        self._generation = object()
        for quota in [each for each in self._recent if not self._is_current(each)]:
            del self._recent[quota]

    def peers_changed(self, *, authenticate: bool | None = None) -> None:
        """Ask connections again whether they are those of brokers, which are exempt.

        Args:
            authenticate: Whether brokers authenticate to each other; None if that has not changed.
        """
        if authenticate is not None:
            self._peers_authenticate = authenticate
        self._generation = object()

    def charge(self, connection: MeteredConnection, frame: memoryview) -> RequestCharge | None:
        """Return the charge for a request, or None if no quota limits it.

        Args:
            connection: The connection of the client.
            frame: The request.

        Raises:
            DecodeError: The header of the request is malformed.
        """
        header = codec.decode_request_header(frame)
        memo = connection.meter_memo
        if memo is None or memo[0] is not self._generation or memo[1] != header.client_id:
            meter = self._meter_of(connection, header.client_id or "")
            memo = connection.meter_memo = (self._generation, header.client_id, meter)
        meter = memo[2]
        if meter is None or header.api_key in EXEMPT:
            return None
        now = self.monotonic()
        charge = RequestCharge(meter, now)
        if header.api_key == Api.PRODUCE and meter.produced is not None:
            charge.hold(meter.produced.record(len(frame), now), now)
        return charge

    def mutation_quota(
        self, principal: Principal, client_id: str | None, *, is_strict: bool
    ) -> MutationQuota | None:
        """Return the quota of a client for changes of partitions, or None if it is not limited."""
        if not self._table.limits_clients:
            return None
        bucket = self._bucket(principal.name, client_id or "")
        return (
            None if bucket is None else MutationQuota(bucket, self.monotonic, is_strict=is_strict)
        )

    def address_rate(self, ip: str) -> Rate | None:
        """Return the rate of new connections from an address, or None if it is not limited."""
        if not self._table.limits_addresses:
            return None
        return self._rate(self._table.of_address(QuotaKey.CONNECTION_CREATION_RATE, ip))

    def _meter_of(self, connection: MeteredConnection, client_id: str) -> ClientMeter | None:
        meter = self._meter(connection.principal.name, client_id)
        is_broker = connection.is_peer and _BROKER.fullmatch(client_id) is not None
        if meter is None or not is_broker:
            return meter
        if self._peers_authenticate:
            return None
        # Any client could choose this ID, so only what would delay other brokers is exempt.
        return meter._replace(requests=None, mutations=None)

    def _meter(self, user: str, client_id: str) -> ClientMeter | None:
        find = self._table.of_client
        meter = ClientMeter(
            self._rate(find(QuotaKey.PRODUCER_BYTE_RATE, user, client_id)),
            self._rate(find(QuotaKey.CONSUMER_BYTE_RATE, user, client_id)),
            self._rate(find(QuotaKey.REQUEST_PERCENTAGE, user, client_id)),
            self._bucket(user, client_id),
        )
        return None if meter == (None,) * len(meter) else meter

    def _rate(self, quota: Quota | None) -> Rate | None:
        if quota is None:
            return None
        rate = self._rates.get(quota)
        if rate is None:
            is_time = quota.key is QuotaKey.REQUEST_PERCENTAGE
            rate = self._rates[quota] = Rate(
                quota.limit / 100 if is_time else quota.limit,
                self._windows,
                self.window_s,
                **({"max_throttle_s": self.window_s} if is_time else {}),
            )
        self._remember(quota, rate)
        return rate

    def _bucket(self, user: str, client_id: str) -> TokenBucket | None:
        quota = self._table.of_client(QuotaKey.CONTROLLER_MUTATION_RATE, user, client_id)
        if quota is None:
            return None
        bucket = self._buckets.get(quota)
        if bucket is None:
            bucket = self._buckets[quota] = TokenBucket(
                quota.limit, self._mutation_windows, self._mutation_window_s
            )
        self._remember(quota, bucket)
        return bucket

    def _remember(self, quota: Quota, used: Rate | TokenBucket) -> None:
        self._recent[quota] = used
        self._recent.move_to_end(quota)
        if len(self._recent) > MAX_REMEMBERED:
            self._recent.popitem(last=False)

    def _is_current(self, quota: Quota) -> bool:
        owner = quota.owner
        if quota.key not in CLIENT_KEYS:
            return self._table.of_address(quota.key, owner.ip or "") == quota
        found = self._table.of_client(quota.key, owner.user or "", owner.client_id or "")
        return found == quota


class MeasuredCoroutine(Coroutine[Any, Any, Any]):
    """A coroutine whose time on the event loop is charged to a request."""

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        charge: RequestCharge,
        monotonic: Callable[[], float],
    ) -> None:
        self._coroutine = coroutine
        self._charge = charge
        self._monotonic = monotonic

    def send(self, value: Any) -> Any:
        self._charge.begin(self._monotonic())
        try:
            return self._coroutine.send(value)
        finally:
            self._charge.end(self._monotonic())

    def throw(self, typ: Any, val: Any = None, tb: TracebackType | None = None) -> Any:
        error = typ if val is None else val
        self._charge.begin(self._monotonic())
        try:
            return self._coroutine.throw(error)
        finally:
            self._charge.end(self._monotonic())

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield from self._coroutine.__await__())
