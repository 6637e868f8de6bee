from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.core.controller.topic_names import validate_topic_name


@pytest.mark.parametrize("name", ["a", "A-z_0.9", "...", "-", "x" * 249, "__consumer_offsets"])
def test_a_legal_name_passes(name: str) -> None:
    validate_topic_name(name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "empty"),
        (".", "'.'"),
        ("..", "'..'"),
        ("x" * 250, "250 characters"),
        ("a b", "'a b'"),
        ("a/b", "'a/b'"),
        ("é", "'é'"),
        ("٣", "'٣'"),
        ("a\n", "ASCII"),
        ("a\0", "ASCII"),
        ("a:b", "ASCII"),
    ],
)
def test_an_illegal_name_is_refused_with_the_reason(name: str, words: str) -> None:
    with pytest.raises(KafkaError, match="illegal") as raised:
        validate_topic_name(name)
    assert raised.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert words in raised.value.message
