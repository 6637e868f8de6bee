"""Tests of the validation of changes of SCRAM credentials."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.scram import ScramCredential, ScramMechanism, derive_credential
from ottla.core.controller.scram import (
    MAX_ALTERATIONS,
    ScramDecision,
    ScramDeletion,
    ScramUpsertion,
    decide_alter_scram,
)

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
OLD = ScramCredential(b"old salt", b"old stored", b"old server", 4096)
CURRENT = {"alice": {SHA_256: OLD, SHA_512: OLD}, "bob": {SHA_256: OLD}}


def upsertion(
    user: str, mechanism: int = 2, iterations: int = 8192, salt: bytes = b"secret-salt"
) -> ScramUpsertion:
    return ScramUpsertion(user, mechanism, iterations, salt, b"secret-salted-password")


def decide(
    *changes: ScramDeletion | ScramUpsertion,
) -> dict[str, ScramDecision]:
    deletions = [each for each in changes if isinstance(each, ScramDeletion)]
    upsertions = [each for each in changes if isinstance(each, ScramUpsertion)]
    decisions = decide_alter_scram(CURRENT, deletions, upsertions)
    assert len({each.user for each in decisions}) == len(decisions)
    return {each.user: each for each in decisions}


def error_of(decision: ScramDecision) -> ErrorCode:
    assert decision.credentials is None
    assert decision.error is not None
    assert decision.error.message
    assert "secret" not in str(decision.error)
    return decision.error.code


def test_a_new_user_gets_keys_derived_from_the_salted_password() -> None:
    decision = decide(upsertion("carol"))["carol"]
    expected = derive_credential(SHA_512, b"secret-salted-password", b"secret-salt", 8192)
    assert decision == ScramDecision("carol", {SHA_512: expected})


def test_a_changed_mechanism_replaces_only_its_own_credential() -> None:
    credentials = decide(upsertion("alice"))["alice"].credentials
    assert credentials is not None
    assert credentials[SHA_256] == OLD
    assert credentials[SHA_512] != OLD


def test_deletion_leaves_the_other_mechanism() -> None:
    assert decide(ScramDeletion("alice", 1))["alice"].credentials == {SHA_512: OLD}
    assert decide(ScramDeletion("bob", 1))["bob"].credentials == {}


def test_two_mechanisms_of_a_user_can_be_altered_in_one_request() -> None:
    credentials = decide(upsertion("bob", 2), ScramDeletion("bob", 1))["bob"].credentials
    assert credentials is not None
    assert list(credentials) == [SHA_512]
    credentials = decide(upsertion("carol", 1), upsertion("carol", 2))["carol"].credentials
    assert credentials is not None
    assert set(credentials) == {SHA_256, SHA_512}


@pytest.mark.parametrize("changes", [
    [upsertion("alice"), upsertion("alice")],
    [ScramDeletion("alice", 2), ScramDeletion("alice", 2)],
    [ScramDeletion("alice", 2), upsertion("alice")],
    [upsertion("alice", 1), upsertion("alice"), upsertion("alice")],
])  # fmt: skip
def test_a_credential_altered_twice_is_refused(
    changes: list[ScramDeletion | ScramUpsertion],
) -> None:
    decisions = decide(*changes, upsertion("carol"))
    assert error_of(decisions["alice"]) == ErrorCode.DUPLICATE_RESOURCE
    assert decisions["carol"].error is None


@pytest.mark.parametrize(("user", "mechanism"), [("nobody", 1), ("bob", 2)])
def test_a_credential_that_does_not_exist_cannot_be_deleted(user: str, mechanism: int) -> None:
    decision = decide(ScramDeletion(user, mechanism))[user]
    assert error_of(decision) == ErrorCode.RESOURCE_NOT_FOUND


@pytest.mark.parametrize("change", [
    upsertion(""), ScramDeletion("", 1), upsertion("x" * 513), upsertion("é" * 257),
    upsertion("a", iterations=4095), upsertion("a", iterations=16385),
    upsertion("a", iterations=0), upsertion("a", iterations=-1), upsertion("a", salt=b"x" * 257),
])  # fmt: skip
def test_unacceptable_credentials_are_refused(change: ScramDeletion | ScramUpsertion) -> None:
    assert error_of(decide(change)[change.user]) == ErrorCode.UNACCEPTABLE_CREDENTIAL


@pytest.mark.parametrize("iterations", [4096, 16384])
def test_kafkas_limits_of_iterations_are_accepted(iterations: int) -> None:
    assert decide(upsertion("a", iterations=iterations))["a"].error is None


@pytest.mark.parametrize("code", [0, 3, -1, 127])
def test_an_unknown_mechanism_is_refused(code: int) -> None:
    for change in (upsertion("alice", code), ScramDeletion("alice", code)):
        assert error_of(decide(change)["alice"]) == ErrorCode.UNSUPPORTED_SASL_MECHANISM


def test_one_wrong_change_refuses_all_changes_of_its_user() -> None:
    decisions = decide(upsertion("alice", 1), upsertion("alice", 2, iterations=1), upsertion("bob"))
    assert error_of(decisions["alice"]) == ErrorCode.UNACCEPTABLE_CREDENTIAL
    assert decisions["bob"].credentials


def test_a_request_with_too_many_changes_is_refused() -> None:
    decisions = decide(*(upsertion(str(number)) for number in range(MAX_ALTERATIONS + 1)))
    assert {error_of(each) for each in decisions.values()} == {ErrorCode.POLICY_VIOLATION}


def test_nothing_to_do_is_no_decision() -> None:
    assert decide() == {}


def test_representations_contain_no_secrets() -> None:
    assert "secret" not in repr(upsertion("alice"))
    assert "secret" not in repr(decide(upsertion("alice")))
