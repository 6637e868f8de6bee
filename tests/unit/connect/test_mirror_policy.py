"""Tests of which topics a mirror copies, how it names them, and how it translates offsets."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ottla.base.errors import UserError
from ottla.connect.connectors.mirror_policy import Naming, Patterns, client_of
from ottla.connect.connectors.mirror_records import (
    MAX_SYNCS,
    Checkpoint,
    Heartbeat,
    OffsetSync,
    Syncs,
)
from ottla.connect.connectors.mirror_source import MirrorSource
from ottla.testing.connectors import SourceKit

GIVEN = {
    "source.cluster.alias": "us",
    "target.cluster.alias": "eu",
    "source.cluster.bootstrap.servers": "a:1",
    "target.cluster.bootstrap.servers": "b:2",
}


def settings(**more: str) -> Any:
    given = GIVEN | {name.replace("_", "."): value for name, value in more.items()}
    return MirrorSource.definition.settings(given)


def test_copies_are_named_for_where_they_come_from() -> None:
    naming = Naming(settings())
    assert naming.remote("orders") == "us.orders"
    assert naming.is_from_target("eu.orders")
    assert not naming.is_from_target("asia.orders")
    assert naming.checkpoints == "us.checkpoints.internal"
    assert naming.offset_syncs("source") == "mm2-offset-syncs.eu.internal"
    assert naming.offset_syncs("target") == "mm2-offset-syncs.us.internal"
    java = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
    assert Naming(settings(replication_policy_class=java)).remote("orders") == "orders"


def test_internal_topics_are_not_copied_by_default() -> None:
    parsed = settings()
    wanted = Patterns("topics", parsed["topics"], parsed["topics.exclude"])
    names = [
        "orders",
        "__consumer_offsets",
        "mm2-offset-syncs.eu.internal",
        "a.replica",
        "x-internal",
    ]
    assert [name for name in names if name in wanted] == ["orders"]


def test_properties_of_the_clusters_go_to_their_clients() -> None:
    parsed = MirrorSource.definition.settings({**GIVEN, "source.cluster.security.protocol": "SSL"})
    assert client_of(parsed, "source") == {"bootstrap.servers": "a:1", "security.protocol": "SSL"}
    assert client_of(parsed, "target") == {"bootstrap.servers": "b:2"}


def test_records_are_in_mirror_makers_form() -> None:
    sync = OffsetSync("orders", 3, 100, 90)
    assert sync.encode() == (
        b"\x00\x06orders\x00\x00\x00\x03",
        b"\x00\x00\x00\x00\x00\x00\x00\x64\x00\x00\x00\x00\x00\x00\x00\x5a",
    )
    assert OffsetSync.decode(*sync.encode()) == sync
    checkpoint = Checkpoint("g", "us.t", 1, 7, 6, "note")
    assert checkpoint.encode() == (
        b"\x00\x01g\x00\x04us.t\x00\x00\x00\x01",
        b"\x00\x00" + (7).to_bytes(8, "big") + (6).to_bytes(8, "big") + b"\x00\x04note",
    )
    assert Checkpoint.decode(*checkpoint.encode()) == checkpoint
    assert Heartbeat("us", "eu", 5).encode() == (
        b"\x00\x02us\x00\x02eu",
        b"\x00\x00" + (5).to_bytes(8, "big"),
    )
    for bad in (b"", b"\x00", b"\x00\x09short"):
        with pytest.raises(ValueError, match="record"):
            OffsetSync.decode(bad, b"")


def test_translation_never_skips_a_record() -> None:
    """A translated offset is never past the copy of the record at the group's offset.

    The source has gaps in its offsets and is mirrored in batches with transaction markers."""
    chance = random.Random(11)
    syncs, upstream, downstream = Syncs(), 0, 0
    where: dict[int, int] = {}
    ends = [0]
    for _ in range(3000):
        for _ in range(chance.randrange(1, 4)):
            where[upstream] = downstream
            upstream, downstream = upstream + chance.choice((1, 1, 1, 3)), downstream + 1
        last = max(where)
        syncs.add(last + 1, downstream + chance.choice((0, 1)))
        downstream += 1
        ends.append(last + 1)
    for offset in range(0, upstream, 97):
        found = syncs.translate(offset)
        if found is None:
            continue
        following = [there for here, there in where.items() if here >= offset]
        assert all(found <= there for there in following[:5])
    assert len(syncs._upstream) <= MAX_SYNCS
    assert syncs.translate(ends[-1]) is not None


def test_offsets_at_a_sync_are_exact() -> None:
    syncs = Syncs()
    assert syncs.translate(5) is None
    syncs.add(10, 8)
    syncs.add(20, 19)
    assert [syncs.translate(each) for each in (9, 10, 15, 20, 99)] == [None, 8, 8, 19, 19]
    syncs.add(15, 30)
    assert [syncs.translate(each) for each in (10, 15, 99)] == [8, 30, 30]
    syncs.add(10, 3)
    assert [syncs.translate(each) for each in (10, 15, 99)] == [3, 3, 3], "the target began anew"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"target.cluster.alias": "us"}, "must differ"),
        ({"topics": "("}, "topics contains an invalid regular expression"),
        ({"source.cluster.alias": ""}, "source.cluster.alias"),
    ],
)
def test_wrong_settings_are_reported(more: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        SourceKit("MirrorSource", GIVEN | more)
