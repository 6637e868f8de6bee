"""Checks that Ottla accepts every configuration under deploy/ without a notice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.deploy.files import DEPLOY

from ottla import Admin, Consumer, Producer, TopicPartition
from ottla.base.config.broker import BrokerConfig
from ottla.base.config.properties import load_properties
from ottla.testing.broker import BrokerProcess

FILES = sorted(DEPLOY.rglob("*.properties"))
OPTIONAL = re.compile(r"^# ([a-z][a-z.]+=)", re.MULTILINE)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(DEPLOY)))
def test_a_configuration_is_accepted_without_a_notice(file: Path) -> None:
    # Some manifests set the advertised address on the command line, so the file alone has none.
    given = {"advertised.listeners": "PLAINTEXT://host:9092"} | load_properties(str(file))
    assert BrokerConfig.from_properties(given).notices() == []


def test_the_settings_that_the_example_offers_are_accepted_too(tmp_path: Path) -> None:
    text = (DEPLOY / "server.properties").read_text()
    file = tmp_path / "server.properties"
    file.write_text(OPTIONAL.sub(r"\1", text))
    given = load_properties(str(file))
    assert len(given) > len(load_properties(str(DEPLOY / "server.properties"))) + 5
    assert BrokerConfig.from_properties(given).notices() == []


def test_a_broker_starts_with_the_example(tmp_path: Path) -> None:
    given = load_properties(str(DEPLOY / "server.properties"))
    own = {name: value for name, value in given.items() if name not in ("log.dirs", "listeners")}
    with BrokerProcess(tmp_path / "data", overrides=own) as broker:
        with Producer(broker.bootstrap) as producer:
            producer.send("orders", b"one").result(30)
        with Admin(broker.bootstrap) as admin:
            assert len(admin.describe_topics("orders")["orders"].partitions) == 1
        with Consumer(broker.bootstrap) as consumer:
            consumer.assign([TopicPartition("orders", 0)])
            consumer.seek_to_beginning()
            assert [each.value for each in consumer.poll(timeout_s=30)] == [b"one"]
        assert broker.stop() == 0
