"""Leader epochs: each start adds one, and the log has the end offset of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.raw_client import Api, RawClient

from ottla.testing.broker import BrokerProcess
from ottla.wire.records.batch import iter_headers

FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
TOPIC = "epochs"


@pytest.fixture(scope="module")
def restarted() -> Iterator[tuple[BrokerProcess, list[int]]]:
    """Run a broker three times with two records each, and yield it with its leader epochs."""
    epochs = []
    with BrokerProcess(strict=True) as process:
        for run in range(3):
            if run:
                process.restart(kill=True)
            with RawClient(process.port) as client:
                if not run:
                    client.create_topic(TOPIC)
                client.produce(TOPIC, [(None, b"%d" % run, (), 1)] * 2)
                epochs.append(leader_epoch(client))
        yield process, epochs


@pytest.fixture
def client(restarted: tuple[BrokerProcess, list[int]]) -> Iterator[RawClient]:
    with RawClient(restarted[0].port) as raw:
        yield raw


@pytest.fixture
def epochs(restarted: tuple[BrokerProcess, list[int]]) -> list[int]:
    return restarted[1]


def leader_epoch(client: RawClient) -> int:
    answer = client.call(Api.METADATA, topics=[{"name": TOPIC}])
    epoch: int = answer.topics[0].partitions[0].leader_epoch
    return epoch


def end_of(client: RawClient, epoch: int, current: int = -1, version: int = 4) -> Any:
    asked = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
    answer = client.call(
        Api.OFFSET_FOR_LEADER_EPOCH,
        version,
        replica_id=-1,
        topics=[{"topic": TOPIC, "partitions": [asked]}],
    )
    return answer.topics[0].partitions[0]


def test_a_crash_begins_a_new_epoch(client: RawClient, epochs: list[int]) -> None:
    assert epochs == sorted(set(epochs))
    stored = [header.leader_epoch for header in iter_headers(bytes(client.fetch(TOPIC).records))]
    assert stored == epochs


def test_each_epoch_ends_where_the_next_begins(client: RawClient, epochs: list[int]) -> None:
    found = [end_of(client, epoch) for epoch in epochs]
    ends = [(each.leader_epoch, each.end_offset) for each in found]
    assert ends == [(epochs[0], 2), (epochs[1], 4), (epochs[2], 6)]


def test_epochs_that_never_were_have_no_end(client: RawClient, epochs: list[int]) -> None:
    for epoch in (epochs[-1] + 1, -1):
        found = end_of(client, epoch)
        assert (found.error_code, found.leader_epoch, found.end_offset) == (0, -1, -1)


def test_a_client_of_another_epoch_is_refused(client: RawClient, epochs: list[int]) -> None:
    older, newer = epochs[-1] - 1, epochs[-1] + 1
    assert end_of(client, epochs[0], older).error_code == FENCED_LEADER_EPOCH
    assert end_of(client, epochs[0], newer).error_code == UNKNOWN_LEADER_EPOCH
    assert end_of(client, epochs[0], epochs[-1]).error_code == 0
    assert client.fetch(TOPIC, current_leader_epoch=older).error_code == FENCED_LEADER_EPOCH
    assert client.fetch(TOPIC, current_leader_epoch=newer).error_code == UNKNOWN_LEADER_EPOCH
    found = client.list_offset(TOPIC, -1, current_leader_epoch=older)
    assert found.error_code == FENCED_LEADER_EPOCH


def test_a_fenced_fetch_names_the_leader(
    restarted: tuple[BrokerProcess, list[int]], client: RawClient, epochs: list[int]
) -> None:
    """KIP-951: Fetch returns the current leader from version 16."""
    topic_id = client.call(Api.METADATA, topics=[{"name": TOPIC}]).topics[0].topic_id
    asked = {
        "partition": 0,
        "fetch_offset": 0,
        "partition_max_bytes": 1000,
        "current_leader_epoch": epochs[0],
        "last_fetched_epoch": -1,
    }
    for version in (15, 16, 18):
        answer = client.call(
            Api.FETCH,
            version,
            session_epoch=-1,
            max_bytes=1000,
            topics=[{"topic_id": topic_id, "partitions": [asked]}],
        )
        (partition,) = answer.responses[0].partitions
        assert partition.error_code == FENCED_LEADER_EPOCH
        if version < 16:
            assert partition.current_leader.leader_id == -1
            continue
        leader = partition.current_leader
        assert (leader.leader_id, leader.leader_epoch) == (1, epochs[-1])
        (node,) = answer.node_endpoints
        assert (node.node_id, node.host, node.port) == (1, "127.0.0.1", restarted[0].port)


def test_a_follower_that_diverged_learns_where(client: RawClient, epochs: list[int]) -> None:
    found = client.fetch(TOPIC, 3, last_fetched_epoch=epochs[0])
    assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (epochs[0], 2)
    assert bytes(found.records) == b""
    found = client.fetch(TOPIC, 2, last_fetched_epoch=epochs[0])
    assert (found.error_code, found.diverging_epoch.epoch) == (0, -1)
    assert bytes(found.records)


def test_a_session_reports_divergence_and_remembers_what_it_sent(
    client: RawClient, epochs: list[int]
) -> None:
    def fetch(session: int, number: int, offset: int, epoch: int) -> Any:
        asked = {
            "partition": 0,
            "fetch_offset": offset,
            "last_fetched_epoch": epoch,
            "partition_max_bytes": 1 << 20,
        }
        return client.call(
            Api.FETCH,
            12,
            session_id=session,
            session_epoch=number,
            max_wait_ms=0,
            max_bytes=1 << 20,
            topics=[{"topic": TOPIC, "partitions": [asked]}],
        )

    session = fetch(0, 0, 6, epochs[2]).session_id
    assert fetch(session, 1, 6, epochs[2]).responses == []
    fetched = fetch(session, 2, 6, epochs[1]).responses[0].partitions[0]
    assert (fetched.diverging_epoch.epoch, fetched.diverging_epoch.end_offset) == (epochs[1], 4)
    fetched = fetch(session, 3, 6, epochs[2]).responses[0].partitions[0]
    assert (fetched.high_watermark, bytes(fetched.records)) == (6, b"")
    assert fetch(session, 4, 6, epochs[2]).responses == []


def test_offsets_are_listed_with_the_epoch_of_their_record(
    client: RawClient, epochs: list[int]
) -> None:
    assert client.list_offset(TOPIC, -2).leader_epoch == epochs[0]
    assert client.list_offset(TOPIC, -1).leader_epoch == epochs[-1]
    assert client.list_offset(TOPIC, 0).leader_epoch == epochs[0]
