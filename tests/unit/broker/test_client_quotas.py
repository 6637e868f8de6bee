"""The quotas of a broker: what is charged to whom, and how much is remembered."""

from __future__ import annotations

import asyncio
import gc

import pytest

from ottla.base.config.broker import BrokerConfig
from ottla.base.quota import DEFAULT, QuotaEntity, QuotaKey
from ottla.broker import quotas as quotas_module
from ottla.broker.quotas import EXEMPT, ClientMeter, ClientQuotas, MeasuredCoroutine, RequestCharge
from ottla.broker.router import HANDLERS
from ottla.core.quota.rate import Rate
from ottla.core.security.principal import Principal
from ottla.wire import codec, schema
from ottla.wire.api import Api

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
REQUESTS = QuotaKey.REQUEST_PERCENTAGE


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Connection:
    def __init__(self, user: str = "alice", *, is_peer: bool = False) -> None:
        self.principal = Principal("User", user)
        self.is_peer = is_peer
        self.meter_memo: tuple[object, str | None, ClientMeter | None] | None = None


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def quotas(clock: Clock) -> ClientQuotas:
    return ClientQuotas(BrokerConfig(), clock)


def frame(api: Api = Api.PRODUCE, client_id: str | None = "app", size: int = 0) -> memoryview:
    version = schema.versions(api)[-1]
    encoded = b"".join(codec.encode_request(api, version, 1, client_id, {}))[4:]
    return memoryview(encoded + bytes(max(0, size - len(encoded))))


def charged(quotas: ClientQuotas, connection: Connection, request: memoryview) -> RequestCharge:
    charge = quotas.charge(connection, request)
    assert charge is not None
    return charge


def test_connections_of_one_user_share_the_quota(quotas: ClientQuotas, clock: Clock) -> None:
    quotas.use({QuotaEntity("alice"): {PRODUCE: 1000.0}})
    assert charged(quotas, Connection(), frame(size=10_000)).throttled({}, clock.now) == {}
    other = charged(quotas, Connection(), frame(client_id="other", size=5_000))
    assert other.throttled({}, clock.now) == {"throttle_time_ms": 14_750}
    assert quotas.charge(Connection("bob"), frame(size=10_000)) is None


def test_clients_with_a_default_quota_have_one_each(quotas: ClientQuotas, clock: Clock) -> None:
    quotas.use({QuotaEntity(client_id=DEFAULT): {PRODUCE: 1000.0}})
    connection = Connection()
    assert not charged(quotas, connection, frame(size=20_000)).allows_fast_path
    assert charged(quotas, connection, frame(client_id="b", size=9_000)).allows_fast_path
    assert not charged(quotas, connection, frame(size=100)).allows_fast_path
    assert charged(quotas, connection, frame(client_id=None, size=9_000)).allows_fast_path


@pytest.mark.parametrize("api", sorted(EXEMPT))
def test_some_requests_are_exempt(quotas: ClientQuotas, api: Api) -> None:
    quotas.use({QuotaEntity("alice"): {REQUESTS: 1.0}})
    assert quotas.charge(Connection(), frame(api)) is None


def test_brokers_are_exempt_but_not_clients_that_claim_to_be_brokers(
    quotas: ClientQuotas,
) -> None:
    quotas.use({QuotaEntity("alice"): {PRODUCE: 1000.0, REQUESTS: 1.0}})
    quotas.peers_changed(authenticate=True)
    request = frame(client_id="broker-1")
    assert quotas.charge(Connection(is_peer=True), request) is None
    assert quotas.charge(Connection(is_peer=True), frame()) is not None
    assert quotas.charge(Connection(is_peer=False), request) is not None
    quotas.peers_changed(authenticate=False)
    meter = charged(quotas, Connection(is_peer=True), request).meter
    assert meter.produced is not None
    assert meter.requests is None


def test_a_changed_quota_applies_to_known_connections(quotas: ClientQuotas) -> None:
    connection = Connection()
    quotas.use({QuotaEntity("alice"): {PRODUCE: 1000.0}, QuotaEntity("bob"): {FETCH: 5.0}})
    before = charged(quotas, connection, frame()).meter
    quotas.use({QuotaEntity("alice"): {PRODUCE: 2000.0, FETCH: 1.0}})
    after = charged(quotas, connection, frame()).meter
    assert before.produced is not None
    assert after.produced is not None
    assert (before.produced.limit, after.produced.limit) == (1000.0, 2000.0)
    quotas.use({QuotaEntity("alice"): {PRODUCE: 2000.0}})
    assert charged(quotas, connection, frame()).meter.produced is after.produced
    quotas.use({})
    assert not quotas.limits_clients
    assert quotas.charge(connection, frame()) is None


def test_what_is_remembered_of_clients_is_bounded(
    quotas: ClientQuotas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas_module, "MAX_REMEMBERED", 100)
    quotas.use({QuotaEntity(client_id=DEFAULT): {PRODUCE: 1000.0, FETCH: 1000.0}})
    connection, kept = Connection(), Connection()
    meter = charged(quotas, kept, frame(client_id="kept")).meter
    for number in range(1_000):
        charged(quotas, connection, frame(client_id=str(number)))
    gc.collect()
    assert len(quotas._recent) == 100
    assert len(quotas._rates) <= 102  # and those of the connection that is still open
    assert charged(quotas, Connection(), frame(client_id="kept")).meter.produced is meter.produced


def test_an_address_has_a_rate_only_while_it_has_a_quota(quotas: ClientQuotas) -> None:
    assert quotas.address_rate("10.0.0.1") is None
    quotas.use({QuotaEntity(ip=DEFAULT): {QuotaKey.CONNECTION_CREATION_RATE: 5.0}})
    assert not quotas.limits_clients
    rate = quotas.address_rate("10.0.0.1")
    assert rate is not None
    assert quotas.address_rate("10.0.0.1") is rate
    assert quotas.address_rate("10.0.0.2") is not rate


# ------------------------------------------------------------------------------------- requests


def test_the_time_of_a_request_is_limited_to_one_window_at_a_time(
    quotas: ClientQuotas, clock: Clock
) -> None:
    quotas.use({QuotaEntity("alice"): {REQUESTS: 10.0}})
    charge = charged(quotas, Connection(), frame(Api.METADATA))
    clock.now += 5.0
    assert charge.throttled({"a": 1}, clock.now) == {"a": 1, "throttle_time_ms": 1000}


def test_time_between_the_steps_of_a_request_is_not_charged(
    quotas: ClientQuotas, clock: Clock
) -> None:
    quotas.use({QuotaEntity("alice"): {REQUESTS: 100.0}})
    charge = charged(quotas, Connection(), frame(Api.METADATA))
    charge.end(clock.now)

    async def request() -> dict[str, int]:
        clock.now += 1
        await asyncio.sleep(0)
        clock.now += 2
        return {}

    measured = MeasuredCoroutine(request(), charge, clock)
    measured.send(None)
    clock.now += 1_000
    with pytest.raises(StopIteration):
        measured.send(None)
    charge.throttled({}, clock.now)
    rate = charge.meter.requests
    assert rate is not None
    assert rate.available(clock.now) == pytest.approx(10 - 3)


def test_a_response_is_not_changed_but_copied(clock: Clock) -> None:
    rate = Rate(1000.0, 11, 1.0)
    charge = RequestCharge(ClientMeter(None, rate, None, None), clock.now)
    charge.record_fetched(11_000, clock.now)
    shared = {"throttle_time_ms": 5}
    assert charge.throttled(shared, clock.now) == {"throttle_time_ms": 10_750}
    assert shared == {"throttle_time_ms": 5}


def test_the_throttle_time_of_the_controller_counts_too(clock: Clock) -> None:
    charge = RequestCharge(ClientMeter(None, None, None, None), clock.now)
    assert charge.throttled({"throttle_time_ms": 700}, clock.now)["throttle_time_ms"] == 700
    assert charge.until == pytest.approx(clock.now + 0.7)


def test_a_fetch_is_refused_only_while_the_debt_is_more_than_a_window(clock: Clock) -> None:
    meter = ClientMeter(None, Rate(1000.0, 11, 1.0), None, None)
    charge = RequestCharge(meter, clock.now)
    assert charge.max_fetch_bytes(clock.now) == 10_000
    charge.record_fetched(12_000, clock.now)
    later = RequestCharge(meter, clock.now)
    assert later.refuses_fetch(clock.now)
    assert later.throttled({}, clock.now)["throttle_time_ms"] == 11_750
    assert not later.refuses_fetch(clock.now + 11.0)
    assert later.max_fetch_bytes(clock.now + 11.0) == 100


@pytest.mark.parametrize("api", sorted({*HANDLERS, Api.API_VERSIONS} - EXEMPT))
def test_every_response_can_have_a_throttle_time(api: Api) -> None:
    body: dict[str, object] = {"throttle_time_ms": 1000}
    if api is Api.PRODUCE:  # whose encoder has no defaults
        body["responses"] = []
    for version in schema.versions(api):
        codec.encode_response(api, version, 1, body)
