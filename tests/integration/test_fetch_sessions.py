"""Incremental fetch sessions (KIP-227), branch by branch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.raw_client import Api, RawClient, read_batches, values

from ottla.testing.broker import BrokerProcess

OFFSET_OUT_OF_RANGE = 1
FETCH_SESSION_ID_NOT_FOUND = 70
UNKNOWN_LEADER_EPOCH = 75
INVALID_FETCH_SESSION_EPOCH = 71
FETCH_SESSION_TOPIC_ID_ERROR = 106
PARTITIONS = 4
FULL, FINAL = 0, -1


class Session:
    """A client with a fetch session.

    `fetch` sends the changes and returns the partitions in the response."""

    def __init__(self, client: RawClient, topic: str, topic_id: bytes, version: int = 12) -> None:
        self.client = client
        self.topic = topic
        self.topic_id = topic_id
        self.version = version
        self.id = 0
        self.epoch = 0

    def fetch(
        self, offsets: dict[int, int] | None = None, forget: Sequence[int] = (), **body: Any
    ) -> dict[int, Any]:
        """Fetch and return partition -> its part of the response."""
        answer = self.ask(offsets or {}, forget, **body)
        assert answer.error_code == 0, answer
        self.id = answer.session_id
        self.epoch += 1
        return {
            partition.partition_index: partition
            for topic in answer.responses
            for partition in topic.partitions
        }

    def ask(
        self,
        offsets: dict[int, int],
        forget: Sequence[int] = (),
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        **body: Any,
    ) -> Any:
        name = {"topic_id": self.topic_id} if self.version >= 13 else {"topic": self.topic}
        partitions = [
            {
                "partition": index,
                "fetch_offset": offset,
                "partition_max_bytes": 1 << 20,
                "current_leader_epoch": current_leader_epoch,
                "last_fetched_epoch": last_fetched_epoch,
            }
            for index, offset in offsets.items()
        ]
        fields = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "session_id": self.id,
            "session_epoch": self.epoch,
            "topics": [{**name, "partitions": partitions}] if partitions else [],
            "forgotten_topics_data": [{**name, "partitions": list(forget)}] if forget else [],
        }
        return self.client.call(Api.FETCH, body.pop("version", self.version), **{**fields, **body})


@pytest.fixture(params=[12, 18], ids=["by name", "by id"])
def session(request: pytest.FixtureRequest, client: RawClient, topic: str) -> Session:
    """Return an open session with four partitions of one record each, all read to the end."""
    topic_id = client.create_topic(topic, PARTITIONS)
    for partition in range(PARTITIONS):
        client.produce(topic, [(None, b"%d" % partition, (), 1)], partition)
    made = Session(client, topic, topic_id, request.param)
    fetched = made.fetch(dict.fromkeys(range(PARTITIONS), 0))
    assert made.id > 0
    assert sorted(fetched) == list(range(PARTITIONS))
    fetched = made.fetch(dict.fromkeys(range(PARTITIONS), 1))
    assert fetched == {}
    return made


def produce(session: Session, partition: int, value: bytes = b"new") -> None:
    session.client.produce(session.topic, [(None, value, (), 1)], partition)


def test_only_partitions_with_news_are_reported(session: Session) -> None:
    assert session.fetch() == {}
    produce(session, 2)
    fetched = session.fetch()
    assert list(fetched) == [2]
    assert values(read_batches(fetched[2].records)) == [b"new"]
    assert session.fetch({2: 2}) == {}


def test_a_partition_whose_offset_did_not_advance_is_sent_again(session: Session) -> None:
    produce(session, 2)
    assert list(session.fetch()) == [2]
    assert list(session.fetch()) == [2]


def test_a_waiting_session_is_woken(broker: BrokerProcess, session: Session) -> None:
    with RawClient(broker.port) as other:
        session.client, writer = other, session.client
        asked = other.send(
            Api.FETCH,
            session.version,
            max_wait_ms=15_000,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=session.id,
            session_epoch=session.epoch,
        )
        writer.assert_is_silent()
        writer.produce(session.topic, [(None, b"new", (), 1)], 3)
        answer = other.receive(Api.FETCH, session.version, asked)
    (topic,) = answer.responses
    assert [each.partition_index for each in topic.partitions] == [3]


def test_a_new_start_offset_is_news(session: Session) -> None:
    produce(session, 1)
    session.fetch()
    session.fetch({1: 2})
    partitions = [{"partition_index": 1, "offset": 1}]
    topics = [{"name": session.topic, "partitions": partitions}]
    session.client.call(Api.DELETE_RECORDS, topics=topics, timeout_ms=10_000)
    fetched = session.fetch()
    assert list(fetched) == [1]
    assert (fetched[1].log_start_offset, bytes(fetched[1].records)) == (1, b"")


def test_partitions_are_forgotten_and_added_again(session: Session) -> None:
    session.fetch(forget=[0, 1])
    for partition in range(PARTITIONS):
        produce(session, partition)
    assert sorted(session.fetch()) == [2, 3]
    assert sorted(session.fetch({0: 1})) == [0, 2, 3]
    session.fetch(forget=[3], offsets={1: 1})
    assert sorted(session.fetch()) == [0, 1, 2]


@pytest.mark.parametrize(
    ("asked", "error_code"),
    [("current_leader_epoch", UNKNOWN_LEADER_EPOCH), ("last_fetched_epoch", OFFSET_OUT_OF_RANGE)],
)
def test_what_a_client_asks_otherwise_is_looked_at_anew_though_nothing_has_happened(
    session: Session, asked: str, error_code: int
) -> None:
    assert session.fetch() == {}
    assert session.fetch({1: 1}, **{asked: 99})[1].error_code == error_code
    session.fetch({1: 1})
    assert session.fetch() == {}


def test_errors_are_reported_until_they_are_over(session: Session) -> None:
    assert session.fetch({1: 99})[1].error_code == OFFSET_OUT_OF_RANGE
    assert session.fetch()[1].error_code == OFFSET_OUT_OF_RANGE
    fetched = session.fetch({1: 1})
    assert (fetched[1].error_code, fetched[1].high_watermark) == (0, 1)
    assert session.fetch() == {}


def test_partitions_with_data_take_turns_under_a_limit(session: Session) -> None:
    """A byte limit must not starve any partition."""
    for partition in range(PARTITIONS):
        produce(session, partition, bytes(1000))
    read: list[int] = []
    for _ in range(PARTITIONS):
        fetched = session.fetch(max_bytes=1100)
        read += [index for index, each in fetched.items() if len(bytes(each.records))]
    assert sorted(read) == list(range(PARTITIONS))


def test_a_wrong_epoch_is_refused_and_changes_nothing(session: Session) -> None:
    for epoch in (session.epoch + 1, session.epoch - 1, 2**31 - 1):
        answer = session.ask({}, session_epoch=epoch)
        assert (answer.error_code, answer.session_id) == (INVALID_FETCH_SESSION_EPOCH, 0)
        assert list(answer.responses) == []
    assert session.fetch() == {}


def test_an_unknown_session_is_refused(session: Session) -> None:
    answer = session.ask({}, session_id=session.id ^ 0x55555)
    assert (answer.error_code, answer.session_id) == (FETCH_SESSION_ID_NOT_FOUND, 0)


def test_a_session_is_closed_by_the_final_epoch(session: Session) -> None:
    answer = session.ask({0: 0}, session_epoch=FINAL)
    assert (answer.error_code, answer.session_id) == (0, 0)
    assert [each.partition_index for each in answer.responses[0].partitions] == [0]
    assert session.ask({}).error_code == FETCH_SESSION_ID_NOT_FOUND


def test_a_full_fetch_closes_the_old_session_and_opens_a_new_one(session: Session) -> None:
    old_id, old_epoch = session.id, session.epoch
    session.epoch = FULL
    fetched = session.fetch({0: 0, 1: 0})
    assert sorted(fetched) == [0, 1]
    assert session.id not in (0, old_id)
    answer = session.ask({}, session_id=old_id, session_epoch=old_epoch)
    assert answer.error_code == FETCH_SESSION_ID_NOT_FOUND
    assert sorted(session.fetch()) == [0, 1]


def test_a_session_without_partitions_is_closed(session: Session) -> None:
    answer = session.ask({}, forget=list(range(PARTITIONS)), max_wait_ms=15_000)
    assert (answer.error_code, answer.session_id, list(answer.responses)) == (0, 0, [])
    session.epoch += 1
    assert session.ask({}).error_code == FETCH_SESSION_ID_NOT_FOUND


def test_a_session_keeps_to_names_or_ids(session: Session) -> None:
    other = 18 if session.version == 12 else 12
    answer = session.ask({}, version=other)
    assert (answer.error_code, answer.session_id) == (FETCH_SESSION_TOPIC_ID_ERROR, 0)
    assert session.fetch() == {}


def test_clients_without_sessions_have_none(client: RawClient, topic: str) -> None:
    topic_id = client.create_topic(topic)
    for version, epoch in ((6, FULL), (12, FINAL)):
        made = Session(client, topic, topic_id, version)
        made.epoch = epoch
        assert list(made.fetch({0: 0})) == [0]
        assert made.id == 0


def test_a_deleted_topic_is_reported_in_its_session(session: Session) -> None:
    session.client.delete_topic(session.topic)
    codes = {index: each.error_code for index, each in session.fetch().items()}
    assert codes == dict.fromkeys(range(PARTITIONS), 3 if session.version == 12 else 100)


def test_a_recreated_topic_is_another_one_to_a_session_of_ids(session: Session) -> None:
    session.client.delete_topic(session.topic)
    session.client.create_topic(session.topic, PARTITIONS)
    codes = {each.error_code for each in session.fetch().values()}
    assert codes == ({OFFSET_OUT_OF_RANGE} if session.version == 12 else {100})


def test_without_a_free_slot_clients_continue_with_full_fetches() -> None:
    overrides = {"max.incremental.fetch.session.cache.slots": "1"}
    with BrokerProcess(overrides=overrides) as broker, RawClient(broker.port) as client:
        topic_id = client.create_topic("t")
        client.produce("t", [(None, b"v", (), 1)])
        first, second = (Session(client, "t", topic_id) for _ in range(2))
        assert list(first.fetch({0: 0})) == [0]
        assert list(second.fetch({0: 0})) == [0]
        assert first.id > 0
        assert second.id == 0
        assert first.fetch({0: 1}) == {}
        first.ask({}, session_epoch=FINAL)
        second.epoch = FULL
        second.fetch({0: 0})
        assert second.id > 0
