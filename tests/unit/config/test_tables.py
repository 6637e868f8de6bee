"""Tests of Ottla's property tables against Apache Kafka's, stored in kafka_4_3_properties.tsv."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.base.config.broker_attributes import BrokerAttributes
from ottla.base.config.broker_table import BROKER
from ottla.base.config.broker_zookeeper_table import ZOOKEEPER_SECURITY_KEYS
from ottla.base.config.definition import ConfigKey, ConfigType, UpdateMode, format_value
from ottla.base.config.topic_table import TOPIC
from ottla.base.config.unused_properties import no_effect, not_needed

FACTS = (Path(__file__).parent / "kafka_4_3_properties.tsv").read_text().splitlines()

OUR_OWN_DEFAULT = {"listeners", "log.dir", "node.id"}
"""Properties with Ottla's own defaults; an unconfigured broker starts, on loopback only."""

OUR_OWN_MODE = {"listeners", "listener.security.protocol.map"}
"""Properties that Kafka can change dynamically; in Ottla, listeners need a restart."""

OUR_OWN_PROPERTIES = {
    "authorizer.audit.log.format",
    "log.flush.acks.all",
    "zookeeper.connect",
    "zookeeper.session.timeout.ms",
    "zookeeper.connection.timeout.ms",
    "broker.lease.ms",
    "controlled.shutdown.timeout.ms",
    *(key.name for key in ZOOKEEPER_SECURITY_KEYS),
}
SINCE_KAFKA_4_4 = {
    "sasl.oauthbearer.allow.unverified.audience",
    "sasl.oauthbearer.allow.unverified.issuer",
}
OF_PLUGINS = {"allow.everyone.if.no.acl.found", "super.users"}
"""Properties of Kafka that belong to its plug-ins, so that its own table does not list them."""
DYNAMIC_ONLY = {"leader.replication.throttled.rate", "follower.replication.throttled.rate"}


class Fact(NamedTuple):
    name: str
    type: str
    default: str | None
    importance: str
    mode: str
    internal: bool


def facts(table: str) -> list[Fact]:
    found = []
    for line in FACTS:
        kind, *columns = line.split("\t")
        if kind == table:
            name, type_, default, importance, mode, visibility = columns
            value = None if default == "<null>" else default
            found.append(Fact(name, type_, value, importance, mode, visibility == "internal"))
    return found


def as_fact(key: ConfigKey) -> Fact:
    return Fact(
        key.name,
        key.type.name.lower(),
        format_value(key.default),
        key.importance.value,
        key.mode.value,
        key.internal,
    )


@pytest.mark.parametrize("fact", facts("topic"), ids=lambda fact: fact.name)
def test_topic_property_is_kafkas(fact: Fact) -> None:
    assert as_fact(TOPIC[fact.name]) == fact


def test_topics_have_no_property_that_kafka_has_not() -> None:
    assert {key.name for key in TOPIC} == {fact.name for fact in facts("topic")}


@pytest.mark.parametrize("fact", facts("broker"), ids=lambda fact: fact.name)
def test_broker_property_is_kafkas_or_known_as_not_honoured(fact: Fact) -> None:
    if fact.name not in BROKER:
        assert not_needed(fact.name) or no_effect(fact.name)
        return
    ours = as_fact(BROKER[fact.name])
    if fact.name in OUR_OWN_DEFAULT:
        ours = ours._replace(default=fact.default)
    if fact.name in OUR_OWN_MODE:
        ours = ours._replace(mode=fact.mode)
    assert ours == fact


def test_brokers_have_no_property_that_kafka_has_not_but_our_own() -> None:
    extra = {key.name for key in BROKER} - {fact.name for fact in facts("broker")}
    assert extra == OUR_OWN_PROPERTIES | OF_PLUGINS | DYNAMIC_ONLY | SINCE_KAFKA_4_4


def test_topic_properties_have_kafkas_synonyms() -> None:
    expected = {}
    for line in FACTS:
        kind, *columns = line.split("\t")
        if kind == "synonyms":
            name, synonyms = columns
            expected[name] = synonyms.split()
    ours = {key.name: [each.name for each in key.synonyms] for key in TOPIC if key.synonyms}
    assert ours == expected


@pytest.mark.parametrize("key", [*TOPIC, *BROKER], ids=lambda key: key.name)
def test_default_passes_its_own_validator_and_survives_its_text_form(key: ConfigKey) -> None:
    text = format_value(key.default)
    if text is not None:
        assert key.parse(text) == key.default


@pytest.mark.parametrize("key", [*TOPIC, *BROKER], ids=lambda key: key.name)
def test_every_property_is_described_in_a_sentence(key: ConfigKey) -> None:
    assert key.doc.endswith(".")
    assert 15 < len(key.doc) < 250


def test_every_dynamic_synonym_of_a_topic_property_exists_on_the_broker() -> None:
    for key in TOPIC:
        for synonym in key.synonyms:
            assert synonym.name in BROKER
        if key.synonyms:
            assert BROKER[key.synonyms[0].name].mode is UpdateMode.CLUSTER_WIDE


def test_every_broker_property_is_a_declared_attribute_of_its_type() -> None:
    python_types = {
        ConfigType.BOOLEAN: "bool",
        ConfigType.STRING: "str",
        ConfigType.INT: "int",
        ConfigType.SHORT: "int",
        ConfigType.LONG: "int",
        ConfigType.DOUBLE: "float",
        ConfigType.LIST: "list[str]",
        ConfigType.PASSWORD: "str",
        ConfigType.CLASS: "str",
    }
    declared = dict(BrokerAttributes.__annotations__)
    for name in (
        "listener_protocols",
        "tls_settings",
        "sasl_settings",
        "inter_broker_listener",
        "zookeeper_security",
    ):
        declared.pop(name)  # from several properties
    for name in ("listeners", "advertised_listeners"):
        assert declared.pop(name) == "list[Listener]"
    expected = {key.attribute: python_types[key.type] for key in BROKER}
    assert {name: kind.removesuffix(" | None") for name, kind in declared.items()} == {
        name: kind for name, kind in expected.items() if name in declared
    }
    assert declared.keys() == expected.keys() - {"listeners", "advertised_listeners"}
