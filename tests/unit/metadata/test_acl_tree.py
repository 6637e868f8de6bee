"""Tests of ACLs in the metadata tree: random changes against a plain set, and their cost."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence

import pytest

from ottla.base.acl import (
    AclBinding,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from ottla.base.metadata import Change, Check, Create, Delete, Node, Op
from ottla.metadata.acl_tree import ACLS, MAX_CHUNK_BYTES, MAX_IN_CHUNK, AclTree
from ottla.metadata.image import ClusterImage

MAX_TXN_BYTES = 768 * 1024


def acl(name: str, principal: str = "User:alice", **changed: object) -> AclBinding:
    binding = AclBinding(
        AclResourceType.TOPIC,
        PatternType.LITERAL,
        name,
        principal,
        "*",
        AclOperation.READ,
        AclPermission.ALLOW,
    )
    return binding._replace(**changed)


class Nodes:
    """A metadata store without anything but its rules, and a tree that follows it."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.tree = AclTree()

    def commit(self, ops: Sequence[Op], checks: Sequence[Check]) -> None:
        """Commit a transaction, and apply its changes one by one."""
        for check in checks:
            found = self.nodes.get(check.path)
            assert (None if found is None else found.version) == check.version
        kept = set(self.tree.bindings)
        written: list[set[AclBinding]] = []
        for op in ops:
            self.tree.apply([self._change(op)])
            written.append(set(self.tree.bindings))
        for seen in written:  # a moved ACL is never missing
            assert kept & set(self.tree.bindings) <= seen

    def _change(self, op: Op) -> Change:
        if isinstance(op, Delete):
            del self.nodes[op.path]
            return op.path, None
        if isinstance(op, Create):
            assert op.path not in self.nodes
            self.nodes[op.path] = Node(op.value, 0)
        else:
            self.nodes[op.path] = Node(op.value, self.nodes[op.path].version + 1)
        return op.path, self.nodes[op.path]

    def add(self, *bindings: AclBinding) -> None:
        self.commit(*self.tree.ops_to_add(bindings))

    def remove(self, *bindings: AclBinding) -> None:
        self.commit(*self.tree.ops_to_remove(bindings))

    def reloaded(self) -> set[AclBinding]:
        tree = AclTree()
        changes = list(self.nodes.items())
        random.Random(1).shuffle(changes)
        tree.apply(changes)
        return set(tree.bindings)


@pytest.mark.parametrize("seed", range(10))
def test_the_tree_contains_what_was_added_and_not_removed(seed: int) -> None:
    chance = random.Random(seed)
    nodes, expected = Nodes(), set[AclBinding]()
    for step in range(60):
        if expected and chance.random() < 0.5:
            most = chance.choice((1, 5, len(expected)))
            gone = chance.sample(sorted(expected), min(most, len(expected)))
            nodes.remove(*gone)
            expected -= set(gone)
        else:
            count = chance.choice((1, 3, 200))
            new = [acl(f"t-{step}-{index}") for index in range(count)]
            nodes.add(*new)
            expected |= set(new)
        assert set(nodes.tree.bindings) == expected
        assert nodes.reloaded() == expected


def test_acls_created_one_by_one_share_nodes() -> None:
    nodes = Nodes()
    for index in range(3 * MAX_IN_CHUNK):
        nodes.add(acl(f"topic-{index}"))
    assert len(nodes.nodes) == 3


def test_removing_everything_leaves_no_node() -> None:
    nodes = Nodes()
    nodes.add(*(acl(f"topic-{index}") for index in range(1000)))
    nodes.remove(*(acl(f"topic-{index}") for index in range(0, 1000, 2)))
    nodes.remove(*(acl(f"topic-{index}") for index in range(1, 1000, 2)))
    assert nodes.nodes == {}


def test_a_chunk_with_few_acls_left_is_dissolved() -> None:
    nodes = Nodes()
    bindings = [acl(f"topic-{index}") for index in range(10 * MAX_IN_CHUNK + 1)]
    nodes.add(*bindings)
    nodes.remove(*(each for index, each in enumerate(bindings) if index % 32))
    assert len(nodes.nodes) <= 3
    assert nodes.reloaded() == set(bindings[::32])


def test_large_acls_get_nodes_of_their_own() -> None:
    nodes = Nodes()
    large = [acl("x" * MAX_CHUNK_BYTES, f"User:{index}") for index in range(3)]
    nodes.add(*large, acl("orders"))
    assert len(nodes.nodes) == 4
    assert nodes.reloaded() == {*large, acl("orders")}


def test_the_acls_of_one_user_among_100_000_are_removed_by_one_small_transaction() -> None:
    nodes = Nodes()
    bindings = [acl(f"topic-{index}", f"User:{index % 10}") for index in range(100_000)]
    nodes.tree.apply(_created(nodes.tree.ops_to_add(bindings)[0]))
    ops, checks = nodes.tree.ops_to_remove(each for each in bindings if each.principal == "User:3")
    size = sum(len(op.path) + len(getattr(op, "value", b"")) + 40 for op in ops)
    assert size + sum(len(check.path) + 40 for check in checks) < MAX_TXN_BYTES


def _created(ops: Sequence[Op]) -> list[Change]:
    return [(op.path, Node(op.value, 0)) for op in ops if isinstance(op, Create)]


def test_the_image_reports_which_acls_were_added_and_removed() -> None:
    image = ClusterImage()
    ops, _ = image.acls.ops_to_add([acl("a"), acl("b")])
    delta = image.apply_access(_created(ops))
    assert (delta.acls_added, delta.acls_removed) == ([acl("a"), acl("b")], [])
    ((path, node),) = _created(ops)
    assert not image.apply_access([(path, node)])
    removed = path + "-removed", Node(b'{"removed":[0]}', 0)
    delta = image.apply_access([removed])
    assert (delta.acls_added, delta.acls_removed) == ([], [acl("a")])


@pytest.mark.parametrize("value", [b"", b"{}", b'{"acls":[1]}', b'{"acls":[[2,3]]}', b"\xff"])
def test_a_malformed_node_keeps_the_previous_acls(
    value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = Nodes()
    nodes.add(acl("orders"))
    (path,) = nodes.nodes
    assert nodes.tree.apply([(path, Node(value, 1))]) == ([], [])
    assert set(nodes.tree.bindings) == {acl("orders")}
    assert [each.levelno for each in caplog.records] == [logging.ERROR]


def test_acls_of_later_versions_have_no_effect_and_are_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nodes = Nodes()
    path = f"{ACLS}0000000000"
    row = b'[99,3,"x","User:a","*",3,3]'
    nodes.nodes[path] = Node(b'{"acls":[' + row + b"]}", 0)
    nodes.tree.apply(list(nodes.nodes.items()))
    assert not nodes.tree.bindings
    assert "does not know" in caplog.text
    nodes.add(acl("orders"))
    nodes.remove(acl("orders"))
    assert row in nodes.nodes[path].value
