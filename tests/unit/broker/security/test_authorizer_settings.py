"""Tests of the warnings about settings of the authorizer."""

from __future__ import annotations

import pytest

from ottla.base.config.broker import BrokerConfig
from ottla.broker.authorization import warnings

CLUSTER = {"zookeeper.connect": "localhost:2181", "listeners": "PLAINTEXT://localhost:9092"}


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"authorizer.class.name": ""}, []),
        ({"super.users": "User:admin"}, []),
        ({}, ["super.users is empty"]),
        ({**CLUSTER, "super.users": "User:admin"}, ["listener PLAINTEXT without authentication"]),
        ({**CLUSTER, "super.users": "User:ANONYMOUS"}, []),
    ],
)
def test_settings_that_lock_everybody_out_are_reported(
    properties: dict[str, str], words: list[str]
) -> None:
    config = BrokerConfig.from_properties({"authorizer.class.name": "ottla", **properties})
    found = list(warnings(config))
    assert len(found) == len(words)
    assert all(expected in text for expected, text in zip(words, found, strict=True))
