"""Tests of the users in the metadata tree and in the cluster image."""

from __future__ import annotations

import logging
from base64 import b64encode
from dataclasses import replace

import pytest

from ottla.base.metadata import Change, Create, Delete, Node, Op, Replace
from ottla.base.scram import ScramCredential, ScramMechanism
from ottla.metadata import tree
from ottla.metadata.image import ClusterImage

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
SECRETS = ("salt-of-the-user", "the-stored-key", "the-server-key")
CREDENTIAL = ScramCredential(*(each.encode() for each in SECRETS), iterations=8192)


def image_with(**users: dict[ScramMechanism, ScramCredential]) -> ClusterImage:
    image = ClusterImage()
    image.apply_access(changes(tree.scram_ops({}, users)))
    return image


def changes(ops: list[Op]) -> list[Change]:
    return [
        (op.path, None if isinstance(op, Delete) else Node(op.value, 0))  # the version is not used
        for op in ops
    ]


def shows_no_secret(text: str) -> bool:
    forms = [each for secret in SECRETS for each in (secret, b64encode(secret.encode()).decode())]
    return not any(form in text for form in forms)


@pytest.mark.parametrize("user", ["alice", "a/b c%", "Zoë 🦦", ".", "..", "a.b", "CN=x,O=y"])
def test_a_user_of_any_name_is_found_in_the_image(user: str) -> None:
    image = ClusterImage()
    delta = image.apply_access(changes(tree.scram_ops({}, {user: {SHA_512: CREDENTIAL}})))
    assert delta.users == {user}
    assert image.scram_credential(SHA_512, user) == CREDENTIAL
    assert image.scram_credential(SHA_256, user) is None
    assert image.scram_credential(SHA_512, "another") is None


def test_the_example_of_a_mechanism_is_that_of_the_first_user_by_name() -> None:
    first, second = replace(CREDENTIAL, iterations=4096), CREDENTIAL
    image = image_with(bob={SHA_256: second}, carol={SHA_256: first, SHA_512: first})
    assert image.scram_example(SHA_256) == second
    assert image.scram_example(SHA_512) == first
    new = {"alice": {SHA_256: first}, "carol": {}}
    image.apply_access(changes(tree.scram_ops(image.scram, new)))
    assert image.scram_example(SHA_256) == first
    assert image.scram_example(SHA_512) is None


@pytest.mark.parametrize("user", ["a/b", ".", "..", "\0"])
def test_a_user_is_one_node_with_a_name_that_zookeeper_accepts(user: str) -> None:
    path = tree.scram_path(user)
    name = path.removeprefix("/access/scram/")
    assert name not in (".", "..")
    assert "/" not in name
    assert name.isprintable()
    assert tree.user_of_path(path) == user


def test_operations_create_replace_and_delete_users() -> None:
    current = {"old": {SHA_256: CREDENTIAL}, "gone": {SHA_256: CREDENTIAL}}
    new = {"old": {SHA_512: CREDENTIAL}, "gone": {}, "new": {SHA_256: CREDENTIAL}, "never": {}}
    ops = tree.scram_ops(current, new)
    kinds = [(type(op), tree.user_of_path(op.path)) for op in ops]
    assert kinds == [(Replace, "old"), (Delete, "gone"), (Create, "new")]
    image = image_with(**current)
    delta = image.apply_access(changes(ops))
    assert image.scram == {"old": {SHA_512: CREDENTIAL}, "new": {SHA_256: CREDENTIAL}}
    assert delta.users == {"old", "gone", "new"}


@pytest.mark.parametrize("value", [
    b"", b"[]", b"{", b"{\"SCRAM-SHA-256\": 5}", b"{\"SCRAM-SHA-256\": {\"salt\": \"?\"}}",
    b"{\"SCRAM-SHA-256\": {\"salt\": \"c2FsdC1vZi10aGUtdXNlcg==\"}}", b"\xff",
])  # fmt: skip
def test_a_user_whose_node_is_malformed_cannot_log_in(
    value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    image = image_with(alice={SHA_256: CREDENTIAL}, bob={SHA_256: CREDENTIAL})
    image.apply_access([(tree.scram_path("alice"), Node(value, 1))])
    assert image.scram == {"bob": {SHA_256: CREDENTIAL}}
    assert "'alice' cannot log in" in caplog.text
    assert shows_no_secret(caplog.text)


def test_mechanisms_of_later_versions_are_ignored() -> None:
    node = Node(tree.encode({**tree.decode(Node(tree.encode_scram({SHA_256: CREDENTIAL}), 0)),
                             "SCRAM-SHA3-512": {"x": 1}}), 0)  # fmt: skip
    image = ClusterImage()
    image.apply_access([(tree.scram_path("alice"), node)])
    assert image.scram == {"alice": {SHA_256: CREDENTIAL}}


def test_representations_show_no_credentials(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    image = ClusterImage()
    ops = tree.scram_ops({}, {"alice": {SHA_256: CREDENTIAL}})
    ops += tree.scram_ops({"alice": {}}, {"alice": {SHA_512: CREDENTIAL}})
    delta = image.apply_access(changes(ops))
    shown = repr([ops, changes(ops), image, image.scram, delta, CREDENTIAL])
    assert "alice" in shown
    assert shows_no_secret(shown)
    assert shows_no_secret(caplog.text)


def test_the_image_of_topics_is_not_affected_by_users() -> None:
    image = ClusterImage()
    image.apply(7, changes(tree.scram_ops({}, {"alice": {SHA_256: CREDENTIAL}})))
    assert not image.scram
