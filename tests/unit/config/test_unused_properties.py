"""Tests that every property of the tables is read by the code, or reported as unused."""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

import ottla
from ottla.base.config.broker import BrokerConfig, Notice
from ottla.base.config.broker_table import BROKER
from ottla.base.config.definition import ConfigKey
from ottla.base.config.group import GROUP
from ottla.base.config.topic_table import TOPIC
from ottla.base.config.unused_properties import (
    NOT_RELEASED,
    SHOWN,
    UNUSED_BY_TOPICS,
    not_released,
    shown_only,
)
from ottla.base.config.validator import KnownClass

SOURCE = Path(ottla.__file__).parent
DECLARATIONS = ("*_table.py", "broker_attributes.py", "unused_properties.py")
"""Modules that name every property without using its value."""
NO_EFFECT = "No effect: "


def names_read(trees: Iterable[ast.Module]) -> set[str]:
    """Return all attributes that are read, and all strings outside docstrings."""
    found = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


@cache
def names_read_in_source() -> frozenset[str]:
    paths = [
        path
        for path in SOURCE.rglob("*.py")
        if not any(path.match(f"base/config/{pattern}") for pattern in DECLARATIONS)
    ]
    return frozenset(names_read(ast.parse(path.read_text("utf-8")) for path in paths))


def is_read(key: ConfigKey) -> bool:
    if key.name.startswith("ssl."):  # an attribute of TlsSettings
        return key.attribute.removeprefix("ssl_") in names_read_in_source()
    if key.name.startswith("sasl.oauthbearer."):  # an attribute of OAuthBearerSettings
        attribute = key.attribute.removeprefix("sasl_oauthbearer_")
        return isinstance(key.validator, KnownClass) or attribute in names_read_in_source()
    if isinstance(key.validator, KnownClass):  # the value itself is all there is to it
        return True
    return key.attribute in names_read_in_source() or key.name in names_read_in_source()


def broker_property_is_read(key: ConfigKey) -> bool:
    """Return whether a property is read itself, as a topic's default, or as a group's bound."""
    topics = [t for t in TOPIC if key.name in [synonym.name for synonym in t.synonyms]]
    if topics:
        return any(is_read(topic) for topic in topics)
    bounds = {
        f"group.consumer.{bound}.{each.name.removeprefix('consumer.')}"
        for each in GROUP
        for bound in ("min", "max")
    }
    return key.name in bounds or is_read(key)


def broker_reason(key: ConfigKey) -> str | None:
    return shown_only(key.name) or not_released(key.name)


@pytest.mark.parametrize("key", BROKER, ids=lambda key: key.name)
def test_a_broker_property_is_read_or_reported_as_unused(key: ConfigKey) -> None:
    assert broker_property_is_read(key) != (broker_reason(key) is not None)


@pytest.mark.parametrize("key", TOPIC, ids=lambda key: key.name)
def test_a_topic_property_is_read_or_described_as_unused(key: ConfigKey) -> None:
    assert is_read(key) != (key.name in UNUSED_BY_TOPICS)


def test_a_property_that_only_its_declarations_name_counts_as_unread() -> None:
    declared = ast.parse("class Attributes:\n    log_preallocate: bool\n")
    assigned = ast.parse("config.log_preallocate = True\n")
    used = ast.parse("if config.log_preallocate: ...\n")
    assert "log_preallocate" not in names_read([declared, assigned])
    assert "log_preallocate" in names_read([declared, used])


@pytest.mark.parametrize("key", [*BROKER, *TOPIC], ids=lambda key: key.name)
def test_the_description_of_an_unused_property_ends_with_the_reason(key: ConfigKey) -> None:
    reason = UNUSED_BY_TOPICS.get(key.name) if key.name in TOPIC else broker_reason(key)
    _, found, described = key.doc.partition(NO_EFFECT)
    assert (described if found else None) == (f"{reason}." if reason else None)


def test_every_unused_property_is_in_the_table() -> None:
    assert SHOWN.keys() <= {key.name for key in BROKER}
    for name in NOT_RELEASED:
        assert any(key.name == name or key.name.startswith(name) for key in BROKER), name
    assert UNUSED_BY_TOPICS.keys() <= {key.name for key in TOPIC}


def notices(**properties: str) -> list[Notice]:
    static = {name.replace("__", "."): text for name, text in properties.items()}
    return BrokerConfig.from_properties(static).notices()


def test_a_property_that_tunes_missing_machinery_is_logged_for_information() -> None:
    assert notices(num__replica__fetchers="4") == [
        Notice(
            logging.INFO,
            "num.replica.fetchers has no effect: a follower uses one fetcher for each leader.",
        )
    ]


def test_a_property_of_a_feature_that_is_not_in_this_release_is_a_warning() -> None:
    assert notices(group__share__max__size="10") == [
        Notice(
            logging.WARNING,
            "group.share.max.size has no effect: share groups are not in this release.",
        )
    ]


def test_group_protocols_that_are_not_in_this_release_are_a_warning() -> None:
    assert notices(group__coordinator__rebalance__protocols="classic,consumer,share") == [
        Notice(
            logging.WARNING,
            "share in group.coordinator.rebalance.protocols has no effect: share groups are not in "
            "this release.",
        )
    ]
    assert notices(group__coordinator__rebalance__protocols="classic,consumer") == []


def test_the_state_topic_of_share_groups_is_configured_silently() -> None:
    """Apache Kafka's own server.properties sets these, and they apply if the topic is created."""
    assert notices(share__coordinator__state__topic__replication__factor="1") == []
