"""Decisions about delegation tokens."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.delegation_token import DelegationToken, token_hmac, token_password
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.principal import ANONYMOUS, Principal
from ottla.core.controller.delegation_tokens import (
    MAX_NAME_BYTES,
    MAX_REMOVALS,
    MAX_RENEWERS,
    MAX_TOKENS,
    MAX_TOKENS_OF_REQUESTER,
    TokenLimits,
    TokenRequest,
    check_may_use_tokens,
    decide_create,
    decide_expire,
    decide_renew,
    tokens_to_remove,
    visible_tokens,
)

ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))
LIMITS = TokenLimits(max_lifetime_ms=7_000, expiry_ms=1_000)
NOW = 50_000


def create(**changes: Any) -> DelegationToken:
    fields: dict[str, Any] = {
        "requester": ALICE,
        "owner": ALICE,
        "renewers": [BOB],
        "max_lifetime_ms": -1,
    }
    options = {"token_count": 0, "own_count": 0, "acts_for_others": False}
    options.update({name: changes.pop(name) for name in list(changes) if name in options})
    request = TokenRequest(**(fields | changes))
    return decide_create(request, LIMITS, token_id="t1", now_ms=NOW, **options)  # type: ignore[arg-type]


def error_of(call: Any, *args: Any, **kwargs: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        call(*args, **kwargs)
    return raised.value.code


def test_the_hmac_is_the_password_in_base64() -> None:
    found = token_hmac("secret", "t1")
    assert len(found) == 64
    assert found == token_hmac("secret", "t1") != token_hmac("other", "t1")
    assert len(token_password(found)) == 88


def test_the_flag_of_a_token_does_not_make_another_principal() -> None:
    assert Principal("User", "alice", is_token_authenticated=True) == ALICE


@pytest.mark.parametrize("principal", [ANONYMOUS, Principal("User", "alice", True)])
def test_only_authenticated_clients_without_a_token_manage_tokens(principal: Principal) -> None:
    check_may_use_tokens(ALICE)
    code = error_of(check_may_use_tokens, principal)
    assert code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@pytest.mark.parametrize(
    ("requested", "max_ms", "expires_ms"),
    [(-1, 7_000, 1_000), (0, 7_000, 1_000), (9_000, 7_000, 1_000), (500, 500, 500)],
)
def test_a_new_token_lives_as_long_as_the_limits_allow(
    requested: int, max_ms: int, expires_ms: int
) -> None:
    found = create(max_lifetime_ms=requested)
    assert (found.issued_ms, found.expires_ms, found.max_ms) == (
        NOW,
        NOW + expires_ms,
        NOW + max_ms,
    )


def test_times_do_not_exceed_64_bits() -> None:
    limits = TokenLimits(2**63 - 1, 2**63 - 1)
    request = TokenRequest(ALICE, ALICE, [], -1)
    found = decide_create(
        request,
        limits,
        token_id="t",
        token_count=0,
        own_count=0,
        acts_for_others=False,
        now_ms=NOW,
    )
    assert found.max_ms == found.expires_ms == 2**63 - 1
    assert decide_renew(found, ALICE, 2**63 - 1, limits, NOW).expires_ms == 2**63 - 1


def test_a_token_for_another_owner_needs_permission() -> None:
    assert error_of(create, owner=BOB) == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    found = create(owner=BOB, acts_for_others=True)
    assert (found.owner, found.requester) == (BOB, ALICE)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"renewers": [Principal("Group", "x")]}, ErrorCode.INVALID_PRINCIPAL_TYPE),
        ({"token_count": MAX_TOKENS}, ErrorCode.POLICY_VIOLATION),
        ({"own_count": MAX_TOKENS_OF_REQUESTER}, ErrorCode.POLICY_VIOLATION),
        (
            {"renewers": [Principal("User", f"{i}" * MAX_NAME_BYTES) for i in range(8)]},
            ErrorCode.POLICY_VIOLATION,
        ),
        ({"renewers": [BOB] * (MAX_RENEWERS + 1)}, ErrorCode.POLICY_VIOLATION),
        (
            {"renewers": [Principal("User", "x" * (MAX_NAME_BYTES + 1))]},
            ErrorCode.POLICY_VIOLATION,
        ),
    ],
)
def test_unacceptable_requests_are_refused(changes: dict[str, Any], code: ErrorCode) -> None:
    assert error_of(create, **changes) == code


@pytest.mark.parametrize("principal", [ALICE, BOB])
@pytest.mark.parametrize(("period", "expires_ms"), [(-1, 1_000), (700, 700), (5_000, 1_000)])
def test_owner_and_renewers_renew_a_token(
    principal: Principal, period: int, expires_ms: int
) -> None:
    later = NOW + 100
    found = decide_renew(create(), principal, period, LIMITS, later)
    assert found.expires_ms == later + expires_ms


def test_a_renewal_ends_at_the_maximum_lifetime() -> None:
    token = create(max_lifetime_ms=1_500)
    found = decide_renew(token, ALICE, -1, LIMITS, NOW + 900)
    assert found.expires_ms == token.max_ms == NOW + 1_500


def test_a_token_that_cannot_be_renewed() -> None:
    token = create()
    assert error_of(decide_renew, None, ALICE, -1, LIMITS, NOW) == (
        ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    )
    assert error_of(decide_renew, token, CAROL, -1, LIMITS, NOW) == (
        ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    )
    assert error_of(decide_renew, token, ALICE, -1, LIMITS, NOW + 1_001) == (
        ErrorCode.DELEGATION_TOKEN_EXPIRED
    )


def test_a_token_expires_now_or_later() -> None:
    token = create()
    assert decide_expire(token, BOB, -1, acts_for_others=False, now_ms=NOW) is None
    assert decide_expire(token, ALICE, -1, acts_for_others=False, now_ms=NOW + 100_000) is None
    later = decide_expire(token, ALICE, 300, acts_for_others=False, now_ms=NOW)
    assert later is not None
    assert later.expires_ms == NOW + 300
    longest = decide_expire(token, ALICE, 100_000, acts_for_others=False, now_ms=NOW)
    assert longest is not None
    assert longest.expires_ms == token.max_ms


def test_a_token_that_cannot_be_expired() -> None:
    token = create()
    assert (
        error_of(decide_expire, None, ALICE, -1, acts_for_others=False, now_ms=NOW)
        == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    )
    assert error_of(decide_expire, token, CAROL, -1, acts_for_others=False, now_ms=NOW) == (
        ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    )
    assert error_of(decide_expire, token, ALICE, 5, acts_for_others=False, now_ms=NOW + 1_001) == (
        ErrorCode.DELEGATION_TOKEN_EXPIRED
    )


def test_clients_see_their_own_tokens_and_super_users_all() -> None:
    tokens = [create(), create(owner=CAROL, renewers=[], acts_for_others=True)]
    assert visible_tokens(tokens, ALICE, None, sees_others=lambda token: False) == tokens[:1]
    assert visible_tokens(tokens, BOB, None, sees_others=lambda token: False) == tokens[:1]
    assert visible_tokens(tokens, BOB, [CAROL], sees_others=lambda token: False) == []
    assert visible_tokens(tokens, ALICE, [], sees_others=lambda token: True) == []
    assert visible_tokens(tokens, ALICE, [CAROL], sees_others=lambda token: True) == tokens[1:]
    assert len(visible_tokens(tokens, ALICE, None, sees_others=lambda token: True)) == 2


def test_a_sweep_removes_a_bounded_number_of_expired_tokens() -> None:
    token = create()
    assert tokens_to_remove([token], NOW + 1_000) == []
    assert tokens_to_remove([token], NOW + 1_001) == [token]
    assert len(tokens_to_remove([token] * 2_000, NOW + 1_001)) == MAX_REMOVALS


def test_a_super_user_ends_the_tokens_of_others_but_does_not_prolong_them() -> None:
    token = create()
    assert decide_expire(token, CAROL, -1, acts_for_others=True, now_ms=NOW) is None
    code = error_of(decide_expire, token, CAROL, 5, acts_for_others=True, now_ms=NOW)
    assert code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
