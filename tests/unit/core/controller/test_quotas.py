"""Changes of client quotas, and filters for them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.metadata import Create, Delete, Node, Replace
from ottla.base.quota import DEFAULT, QuotaEntity, QuotaKey
from ottla.core.controller.quotas import (
    MAX_ALTERATIONS,
    FilterComponent,
    QuotaAlteration,
    QuotaChange,
    QuotaDecision,
    decide_alter_quotas,
    find_quotas,
)
from ottla.metadata import tree
from ottla.metadata.image import ClusterImage

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
Parts = Sequence[tuple[str, str | None]]
ALICE: Parts = [("user", "alice")]


def decide(parts: Parts, *changes: tuple[str, float | None]) -> QuotaDecision:
    alteration = QuotaAlteration(parts, [QuotaChange(*each) for each in changes])
    (decision,) = decide_alter_quotas({QuotaEntity("alice"): {PRODUCE: 5.0}}, [alteration])
    return decision


def error(parts: Parts, *changes: tuple[str, float | None]) -> str:
    decision = decide(parts, *changes)
    assert decision.error is not None
    assert decision.error.code == ErrorCode.INVALID_REQUEST
    assert decision.values is None
    return decision.error.message


def test_changes_are_merged_with_the_present_quotas() -> None:
    changed = decide(ALICE, ("consumer_byte_rate", 7.0), ("request_percentage", 12.5))
    assert changed.error is None
    assert changed.entity == QuotaEntity("alice")
    assert changed.values == {PRODUCE: 5.0, FETCH: 7.0, QuotaKey.REQUEST_PERCENTAGE: 12.5}
    assert decide(ALICE, ("producer_byte_rate", None), ("unknown", None)).values == {}


def test_later_changes_of_an_entity_see_the_earlier_ones() -> None:
    requests = [
        QuotaAlteration(ALICE, [QuotaChange(key, 1.0)])
        for key in ("producer_byte_rate", "consumer_byte_rate")
    ]
    assert decide_alter_quotas({}, requests)[1].values == {PRODUCE: 1.0, FETCH: 1.0}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "empty client quota entity"),
        ([("user", "")], "Empty user not supported"),
        ([("planet", "mars")], "Unhandled client quota entity type: planet"),
        ([("user", "a"), ("user", "b")], "more than once"),
        ([("user", "a"), ("ip", "10.0.0.1")], "cannot be combined"),
        ([("client-id", None), ("ip", None)], "cannot be combined"),
        ([("ip", "no-address")], "not a valid IP address"),
        ([("user", "x" * 600)], "must not exceed"),
    ],
)
def test_malformed_entities_are_refused(parts: Parts, message: str) -> None:
    assert message in error(parts, ("producer_byte_rate", 1.0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("no_such_quota", 1.0), "Invalid configuration key no_such_quota"),
        (("connection_creation_rate", 1.0), "Invalid configuration key"),
        (("producer_byte_rate", 0.0), "must be greater than 0"),
        (("producer_byte_rate", -1.0), "must be greater than 0"),
        (("request_percentage", float("nan")), "must be greater than 0"),
        (("request_percentage", float("inf")), "too large"),
        (("producer_byte_rate", 1e30), "too large"),
        (("producer_byte_rate", 1.5), "cannot be a fractional value"),
        (("consumer_byte_rate", 1024.25), "cannot be a fractional value"),
    ],
)
def test_invalid_values_are_refused(change: tuple[str, float], message: str) -> None:
    assert message in error(ALICE, change)


def test_a_key_cannot_be_changed_twice_in_one_entry() -> None:
    assert "Duplicate quota key" in error(
        ALICE, ("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)
    )


def test_only_addresses_have_a_connection_rate() -> None:
    parts: Parts = [("ip", "::FFFF:10.0.0.1")]
    decision = decide([("ip", "2001:DB8::0:1")], ("connection_creation_rate", 10.0))
    assert decision.entity == QuotaEntity(ip="2001:db8::1")
    assert "cannot be a fractional value" in error(parts, ("connection_creation_rate", 0.5))
    assert "too large" in error(parts, ("connection_creation_rate", 2.0**31))
    assert "Invalid configuration key" in error(parts, ("producer_byte_rate", 1.0))


def test_too_many_changes_are_refused_together() -> None:
    requests = [QuotaAlteration(ALICE, [])] * (MAX_ALTERATIONS + 1)
    errors = [each.error for each in decide_alter_quotas({}, requests)]
    assert {each.code for each in errors if each} == {ErrorCode.POLICY_VIOLATION}


QUOTAS = {
    QuotaEntity("alice"): {PRODUCE: 1.0},
    QuotaEntity("alice", "app"): {PRODUCE: 2.0},
    QuotaEntity("alice", DEFAULT): {PRODUCE: 3.0},
    QuotaEntity(DEFAULT): {PRODUCE: 4.0},
    QuotaEntity(client_id="app"): {PRODUCE: 5.0},
    QuotaEntity(ip="10.0.0.1"): {QuotaKey.CONNECTION_CREATION_RATE: 6.0},
}


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([], False, {1, 2, 3, 4, 5, 6}),
        ([], True, set()),
        ([("user", 0, "alice")], True, {1}),
        ([("user", 0, "alice")], False, {1, 2, 3}),
        ([("user", 1, None)], True, {4}),
        ([("user", 2, None)], True, {1, 4}),
        ([("user", 2, None), ("client-id", 2, None)], True, {2, 3}),
        ([("user", 0, "alice"), ("client-id", 1, None)], True, {3}),
        ([("client-id", 0, "app")], False, {2, 5}),
        ([("ip", 2, None)], True, {6}),
    ],
)
def test_filters_match_names_defaults_and_everything(
    components: list[tuple[str, int, str | None]], strict: bool, expected: set[int]
) -> None:
    found = find_quotas(QUOTAS, [FilterComponent(*each) for each in components], strict=strict)
    assert {value for _, values in found for value in values.values()} == expected


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("planet", 2, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", 2, None), ("user", 1, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 1, "alice")], ErrorCode.INVALID_REQUEST),
        ([("user", 2, "alice")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 2, None), ("ip", 2, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_malformed_filters_are_refused(
    components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as failure:
        find_quotas(QUOTAS, [FilterComponent(*each) for each in components], strict=False)
    assert failure.value.code == code


STRANGE = [
    QuotaEntity("a/b, c=d %"),
    QuotaEntity(DEFAULT, ".."),
    QuotaEntity(client_id="ü\n"),
    QuotaEntity(ip=DEFAULT),
    QuotaEntity(ip="2001:db8::1"),
]


@pytest.mark.parametrize("entity", [*QUOTAS, *STRANGE])
def test_entities_have_paths_from_which_they_are_found(entity: QuotaEntity) -> None:
    path = tree.quota_path(entity)
    assert path.count("/") == tree.QUOTAS.count("/")
    assert tree.quota_entity_of_path(path) == entity


def test_the_image_shows_the_quotas_of_the_tree() -> None:
    image, alice = ClusterImage(), QuotaEntity("alice")
    (create,) = tree.quota_ops(image.quotas, {alice: {PRODUCE: 5.0}, QuotaEntity("bob"): {}})
    assert isinstance(create, Create)
    delta = image.apply_access([(create.path, Node(create.value, 0))])
    assert delta.quotas == {alice}
    assert image.quotas == {alice: {PRODUCE: 5.0}}
    (replace,) = tree.quota_ops(image.quotas, {alice: {FETCH: 6.0}})
    assert isinstance(replace, Replace)
    image.apply_access([(create.path, Node(b'{"later_key": 1, "consumer_byte_rate": 6}', 1))])
    assert image.quotas == {alice: {FETCH: 6.0}}
    assert not image.apply_access([(create.path, Node(b"[", 2))])
    assert image.quotas == {alice: {FETCH: 6.0}}
    assert tree.quota_ops(image.quotas, {alice: {}}) == [Delete(create.path)]
    assert image.apply_access([(create.path, None)])
    assert image.quotas == {}
