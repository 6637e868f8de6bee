"""The modules that a produce request passes through, and how often it enters each.

A request that returns to a module again and again is hard to follow and to guard. ARCHITECTURE.md
lists the entries; these tests count them on a running broker.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from operator import and_
from pathlib import Path
from types import FrameType

import pytest
from tests.raw_client import RawClient

from ottla.testing.broker_thread import BrokerThread

ARCHITECTURE = Path(__file__).parents[2] / "ARCHITECTURE.md"
ROW = re.compile(r"\| `([a-z_/]+)\.py` \| (\d+) \| (\d+) \|")
TOPIC = "walk"


class Walk:
    """A profile function that counts how often calls enter a module of Ottla from another one."""

    def __init__(self) -> None:
        self.entries: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        module, caller = _module(frame), frame.f_back
        if event == "call" and module and (caller is None or _module(caller) != module):
            self.entries[module] += 1


def _module(frame: FrameType) -> str:
    package, _, module = str(frame.f_globals.get("__name__", "")).partition(".")
    return module.replace(".", "/") if package == "ottla" else ""


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread() as broker:
        with RawClient(broker.port) as client:
            client.create_topic(TOPIC)
            produce(client)  # readers and writers of messages are compiled when first used
        yield broker


def produce(client: RawClient) -> None:
    assert client.produce(TOPIC, [(None, b"value", [], 0)]).error_code == 0


def entries_of_produce(broker: BrokerThread, client: RawClient) -> Counter[str]:
    async def watch(profile: Walk | None) -> None:
        sys.setprofile(profile)

    walk = Walk()
    broker.run(watch(walk))
    try:
        produce(client)
    finally:
        broker.run(watch(None))
    return walk.entries


def entries(broker: BrokerThread) -> tuple[Counter[str], Counter[str]]:
    """Return the entries of a connection's first and second request, without those of timers."""
    walks = []
    for _ in range(5):
        with RawClient(broker.port) as client:
            walks.append((entries_of_produce(broker, client), entries_of_produce(broker, client)))
    first, second = zip(*walks, strict=True)
    return reduce(and_, first), reduce(and_, second)  # the smallest number of each module


def test_a_produce_request_enters_modules_as_often_as_documented(broker: BrokerThread) -> None:
    rows = ROW.findall(ARCHITECTURE.read_text())
    first, second = entries(broker)
    assert {module: (first[module], second[module]) for module, _, _ in rows} == {
        module: (int(once), int(again)) for module, once, again in rows
    }


def test_the_documented_modules_are_those_of_the_broker_and_its_log(broker: BrokerThread) -> None:
    documented = {module for module, _, _ in ROW.findall(ARCHITECTURE.read_text())}
    first, second = entries(broker)
    parts = ("broker/", "core/", "storage/log", "storage/segment")
    assert {each for each in first | second if each.startswith(parts)} == documented
