"""ApiVersions reports exactly the served versions, also to clients newer than the broker."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from kio.schema.index import api_key_map
from tests.raw_client import Api, ConnectionClosed, RawClient

from ottla.testing.broker import BrokerProcess
from ottla.wire import schema
from ottla.wire.codec import decode_response

SOFTWARE = {"client_software_name": "test", "client_software_version": "1.0"}
UNSUPPORTED_VERSION = 35
INVALID_REQUEST = 42
PRODUCE_ADVERTISED_FROM = 0


def advertised(client: RawClient) -> dict[int, tuple[int, int]]:
    answer = client.call(Api.API_VERSIONS, 4, **SOFTWARE)
    return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}


def header(api_key: int, version: int, correlation_id: int = 77) -> bytes:
    return struct.pack(">hhih", api_key, version, correlation_id, -1)


def test_the_advertised_versions_are_those_of_the_schema(client: RawClient) -> None:
    ranges = advertised(client)
    for api_key, (low, high) in ranges.items():
        versions = schema.versions(api_key)
        expected_low = PRODUCE_ADVERTISED_FROM if api_key == Api.PRODUCE else versions[0]
        assert (low, high) == (expected_low, versions[-1])


def test_versions_outside_the_advertised_range_are_refused(
    broker: BrokerProcess, client: RawClient
) -> None:
    """The broker closes the connection, as Kafka does."""
    for api_key, (low, high) in advertised(client).items():
        if api_key == Api.API_VERSIONS:
            continue
        lowest_served = schema.versions(api_key)[0]
        for version in {lowest_served - 1, low - 1, high + 1}:
            if version < 0:
                continue
            with RawClient(broker.port) as other:
                other.send_frame(header(api_key, version) + bytes(64))
                with pytest.raises(ConnectionClosed):
                    other.receive_frame()


def test_an_api_that_is_not_advertised_closes_the_connection(
    broker: BrokerProcess, client: RawClient
) -> None:
    ranges = advertised(client)
    for api_key in (*(each for each in api_key_map if each not in ranges), 999, -1):
        with RawClient(broker.port) as other:
            other.send_frame(header(api_key, 0) + bytes(64))
            with pytest.raises(ConnectionClosed):
                other.receive_frame()


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_a_newer_client_gets_the_range_in_version_0(client: RawClient, version: int) -> None:
    """KIP-511: the broker cannot parse the body of such a request, and does not need it."""
    client.send_frame(header(Api.API_VERSIONS, version) + b"\xff\x00 not to be read")
    frame = client.receive_frame()
    correlation_id, answer = decode_response(Api.API_VERSIONS, 0, memoryview(frame))
    assert correlation_id == 77
    assert answer.error_code == UNSUPPORTED_VERSION
    (own,) = answer.api_keys
    assert (own.api_key, own.min_version, own.max_version) == (Api.API_VERSIONS, 0, 4)
    assert client.call(Api.API_VERSIONS, 4, **SOFTWARE).error_code == 0


@pytest.mark.parametrize(
    ("name", "version"), [("", "1"), ("test", ""), ("te st", "1"), ("-test", "1"), ("test", "1.")]
)
def test_software_names_are_checked(client: RawClient, name: str, version: str) -> None:
    body: dict[str, Any] = {"client_software_name": name, "client_software_version": version}
    assert client.call(Api.API_VERSIONS, 3, **body).error_code == INVALID_REQUEST
    assert client.call(Api.API_VERSIONS, 2, **body).error_code == 0


def test_answers_come_in_the_order_of_the_requests(client: RawClient, topic: str) -> None:
    """Later requests do not overtake a fetch that waits."""
    client.create_topic(topic)
    waiting = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    first = client.send(
        Api.FETCH,
        11,
        max_wait_ms=300,
        min_bytes=1,
        max_bytes=1000,
        session_epoch=-1,
        topics=[{"topic": topic, "partitions": [waiting]}],
    )
    second = client.send(Api.API_VERSIONS, 4, **SOFTWARE)
    assert client.receive(Api.FETCH, 11, first).responses
    assert client.receive(Api.API_VERSIONS, 4, second).error_code == 0
