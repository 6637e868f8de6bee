"""Tests of mapping error codes to exceptions, and of retry backoff."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.client.backoff import Backoff
from ottla.client.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    BrokersUnreachable,
    ClientError,
    ConnectionLost,
    KafkaTimeout,
    ProducerFenced,
    RecordTooLarge,
    UnknownTopic,
    error_for,
)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UnknownTopic),
        (ErrorCode.REQUEST_TIMED_OUT, KafkaTimeout),
        (ErrorCode.MESSAGE_TOO_LARGE, RecordTooLarge),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationFailed),
        (ErrorCode.SASL_AUTHENTICATION_FAILED, AuthenticationFailed),
        (ErrorCode.PRODUCER_FENCED, ProducerFenced),
        (ErrorCode.INVALID_REQUEST, ClientError),
    ],
)
def test_a_code_has_its_type(code: ErrorCode, kind: type[ClientError]) -> None:
    error = error_for(code)
    assert type(error) is kind
    assert error.code is code
    assert isinstance(error, KafkaError)


def test_where_it_happened_is_in_the_message() -> None:
    error = error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, topic="orders", partition=3)
    assert str(error) == "orders-3: not leader or follower"
    assert (error.topic, error.partition, error.retriable) == ("orders", 3, True)
    assert str(error_for(ErrorCode.INVALID_TOPIC_EXCEPTION, "bad name", topic="x")) == "x: bad name"


def test_a_code_of_a_newer_kafka_is_reported_by_its_number() -> None:
    error = error_for(9_999)
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "9999" in str(error)


def test_pythons_own_kinds_catch_ours() -> None:
    assert isinstance(KafkaTimeout("late"), TimeoutError)
    assert isinstance(BrokersUnreachable("nobody"), TimeoutError)
    assert isinstance(ConnectionLost("gone"), ConnectionError)
    assert ProducerFenced("by another").fatal
    assert not ConnectionLost("gone").fatal


def test_pauses_double_up_to_a_limit_and_differ() -> None:
    backoff = Backoff(100, 1_000)
    pauses = [backoff.next_s() for _ in range(50)]
    for pause, middle in zip(pauses, [0.1, 0.2, 0.4, 0.8, *[1.0] * 46], strict=True):
        assert middle * 0.8 <= pause <= middle * 1.2
    assert len(set(pauses)) > 40, "clients that fail together do not come back together"
    backoff.reset()
    assert backoff.next_s() <= 0.12


def test_a_pause_of_nothing_stays_nothing() -> None:
    assert Backoff(0, 0).next_s() == 0
