from __future__ import annotations

from typing import Any

import pytest

from ottla.client.errors import InvalidConfig
from ottla.client.producer.config import ProducerConfig


def config(**keywords: Any) -> ProducerConfig:
    return ProducerConfig.of("localhost:9092", None, keywords)


def test_idempotence_is_on_by_default() -> None:
    assert config().is_idempotent


@pytest.mark.parametrize(
    "property_",
    [{"acks": 1}, {"acks": 0}, {"retries": 0}, {"max_in_flight_requests_per_connection": 6}],
)
def test_what_excludes_idempotence_switches_it_off_unless_it_was_asked_for(
    property_: dict[str, Any],
) -> None:
    assert not config(**property_).is_idempotent
    with pytest.raises(InvalidConfig, match="idempotence"):
        config(enable_idempotence=True, **property_)
    with pytest.raises(InvalidConfig, match="transactional"):
        config(transactional_id="t", **property_)


def test_a_delivery_timeout_shorter_than_one_request_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="delivery"):
        config(delivery_timeout_ms=1000)


@pytest.mark.parametrize(("text", "number"), [("all", -1), ("-1", -1), (1, 1), ("0", 0)])
def test_acks_are_a_word_or_a_number(text: object, number: int) -> None:
    assert config(acks=text).required_acks == number


@pytest.mark.parametrize(
    "property_",
    [{"compression_gzip_level": 0}, {"compression_zstd_level": 23}, {"compression_type": "brotli"}],
)
def test_compression_that_does_not_exist_is_refused(property_: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig):
        config(**property_)
