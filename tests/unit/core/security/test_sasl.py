"""Tests of the SASL dialogue: which requests are allowed when, sessions and re-authentication."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.base.errors import ErrorCode
from ottla.core.security.principal import Principal
from ottla.core.security.sasl import (
    Authenticated,
    Challenge,
    Dialogue,
    DialogueError,
    Exchange,
    OfferedMechanism,
    Rejected,
    SessionExpired,
    State,
    Step,
)

VERSIONS, HANDSHAKE, AUTHENTICATE, METADATA = 18, 17, 36, 3
NOW, WALL = 1_000.0, 1_700_000_000.0
ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")


class Scripted:
    """A mechanism whose client sends the result of the next step: `ok alice`, `more`, `no`."""

    may_wait = False

    def start(self) -> Exchange:
        return self

    def step(self, message: bytes) -> Step:
        word, _, rest = message.decode().partition(" ")
        if word == "more":
            return Challenge(b"challenge")
        if word == "no":
            return Rejected("it said no", rest)
        user, _, lifetime = rest.partition(" ")
        expires_at = WALL + float(lifetime) if lifetime else None
        return Authenticated(Principal("User", user), b"final", expires_at)


class Waiting(Scripted):
    may_wait = True


def dialogue(max_session_s: float = 0.0) -> Dialogue:
    return Dialogue(
        {
            "ONE": OfferedMechanism(Scripted(), max_session_s),
            "TWO": OfferedMechanism(Scripted(), 0.0),
            "SLOW": OfferedMechanism(Waiting(), 0.0),
        }
    )


def authenticate(found: Dialogue, token: str = "ok alice", now: float = NOW) -> int:
    """Send both requests, and return the lifetime of the session."""
    found.check(HANDSHAKE, True, now)
    assert found.handshake(1, "ONE", now).error_code == ErrorCode.NONE
    found.check(AUTHENTICATE, True, now)
    answer = found.stepped(found.step(token.encode()), now, WALL)
    assert answer.error_code == ErrorCode.NONE
    return answer.session_lifetime_ms


# ------------------------------------------------------------------------------- allowed requests


def fresh() -> Dialogue:
    return dialogue()


def after_versions() -> Dialogue:
    found = dialogue()
    found.check(VERSIONS, True, NOW)
    return found


def after_refused_versions() -> Dialogue:
    found = dialogue()
    found.check(VERSIONS, False, NOW)
    return found


def after_handshake() -> Dialogue:
    found = after_versions()
    found.handshake(1, "ONE", NOW)
    return found


def after_a_challenge() -> Dialogue:
    found = after_handshake()
    found.stepped(found.step(b"more"), NOW, WALL)
    return found


def after_failure() -> Dialogue:
    found = after_handshake()
    found.stepped(found.step(b"no"), NOW, WALL)
    return found


def authenticated() -> Dialogue:
    found = after_versions()
    authenticate(found)
    return found


def authenticating_again() -> Dialogue:
    found = dialogue(10.0)
    authenticate(found)
    found.handshake(1, "ONE", NOW + 5)
    return found


ALLOWED = [
    (fresh, {VERSIONS, HANDSHAKE}),
    (after_refused_versions, {VERSIONS, HANDSHAKE}),
    (after_versions, {HANDSHAKE}),
    (after_handshake, {AUTHENTICATE}),
    (after_a_challenge, {AUTHENTICATE}),
    (after_failure, set[int]()),
    (authenticated, {VERSIONS, HANDSHAKE, AUTHENTICATE, METADATA}),
    (authenticating_again, {AUTHENTICATE}),
]


@pytest.mark.parametrize("api_key", [VERSIONS, HANDSHAKE, AUTHENTICATE, METADATA, 12_345, -1])
@pytest.mark.parametrize(("begin", "allowed"), ALLOWED)
def test_a_client_may_send_only_what_the_state_allows(
    begin: Callable[[], Dialogue], allowed: set[int], api_key: int
) -> None:
    found = begin()
    if api_key in allowed or found.state is State.AUTHENTICATED:
        found.check(api_key, True, NOW)
    else:
        with pytest.raises(DialogueError, match="before it was authenticated"):
            found.check(api_key, True, NOW)


# ------------------------------------------------------------------------------------- handshake


def test_an_unknown_mechanism_is_answered_with_the_enabled_ones() -> None:
    found = after_versions()
    answer = found.handshake(1, "GSSAPI", NOW)
    assert answer == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ("ONE", "TWO", "SLOW"))
    assert found.state is State.FAILED


def test_version_0_of_the_handshake_is_followed_by_raw_tokens() -> None:
    found = after_versions()
    assert found.handshake(0, "ONE", NOW) == (ErrorCode.NONE, ("ONE", "TWO", "SLOW"))
    assert found.state is State.RAW_TOKENS
    assert found.stepped(found.step(b"ok alice"), NOW, WALL).token == b"final"
    assert (found.state, found.principal) == (State.AUTHENTICATED, ALICE)


def test_version_0_of_the_handshake_has_no_mechanism_that_may_wait() -> None:
    assert after_versions().handshake(0, "SLOW", NOW).error_code == (
        ErrorCode.UNSUPPORTED_SASL_MECHANISM
    )
    found = after_versions()
    assert found.handshake(1, "SLOW", NOW).error_code == ErrorCode.NONE


# ---------------------------------------------------------------------------------------- failure


def test_a_failure_has_kafkas_text_unless_the_mechanism_has_its_own() -> None:
    found = after_handshake()
    answer = found.stepped(found.step(b"no"), NOW, WALL)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.message == (
        "Authentication failed during authentication due to invalid credentials with SASL "
        "mechanism ONE"
    )
    assert answer.reason == "it said no"
    found = after_handshake()
    assert found.stepped(found.step(b"no own text"), NOW, WALL).message == "own text"


# ---------------------------------------------------------------------------------------- sessions


@pytest.mark.parametrize(
    ("max_session_s", "token", "lifetime_ms"),
    [
        (0.0, "ok alice", 0),
        (60.0, "ok alice", 60_000),
        (0.0, "ok alice 30", 30_000),
        (60.0, "ok alice 30", 30_000),
        (60.0, "ok alice 90", 60_000),
    ],
)
def test_the_session_ends_with_the_credentials_or_after_the_configured_time(
    max_session_s: float, token: str, lifetime_ms: int
) -> None:
    found = dialogue(max_session_s)
    assert authenticate(found, token) == lifetime_ms
    assert found.is_limited is (lifetime_ms > 0)
    found.check(METADATA, True, NOW + lifetime_ms / 1000)
    if lifetime_ms:
        with pytest.raises(SessionExpired):
            found.check(METADATA, True, NOW + lifetime_ms / 1000 + 0.001)


def test_credentials_that_have_expired_are_rejected() -> None:
    found = after_handshake()
    answer = found.stepped(found.step(b"ok alice 0"), NOW, WALL)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.reason == "the credentials have expired"


def test_a_client_extends_its_session_before_and_even_after_its_end() -> None:
    found = dialogue(10.0)
    authenticate(found)
    for at in (NOW + 9, NOW + 18, NOW + 100):
        assert authenticate(found, now=at) == 10_000
        found.check(METADATA, True, at + 10)
    with pytest.raises(SessionExpired):
        found.check(METADATA, True, NOW + 111)


def test_a_session_without_an_end_cannot_be_extended() -> None:
    found = authenticated()
    assert found.handshake(1, "ONE", NOW) == (ErrorCode.ILLEGAL_SASL_STATE, ())
    assert found.state is State.AUTHENTICATED


def test_a_client_may_authenticate_again_once_per_second() -> None:
    found = dialogue(10.0)
    authenticate(found)
    authenticate(found, now=NOW + 2)
    assert found.handshake(1, "ONE", NOW + 2.9).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert found.state is State.AUTHENTICATED
    authenticate(found, now=NOW + 3)


def test_raw_tokens_cannot_extend_a_session() -> None:
    found = dialogue(10.0)
    authenticate(found)
    assert found.handshake(0, "ONE", NOW + 2).error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_the_principal_must_not_change() -> None:
    found = dialogue(10.0)
    authenticate(found)
    found.handshake(1, "ONE", NOW + 2)
    answer = found.stepped(found.step(b"ok bob"), NOW + 2, WALL)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.message == (
        "Cannot change principals during re-authentication from User:alice to User:bob"
    )
    assert (found.state, found.principal) == (State.FAILED, ALICE)


def test_the_mechanism_must_not_change() -> None:
    found = dialogue(10.0)
    authenticate(found)
    assert found.handshake(1, "TWO", NOW + 2).error_code == ErrorCode.NONE
    answer = found.stepped(found.step(b"ok alice"), NOW + 2, WALL)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.message == (
        "SASL mechanism 'TWO' requested by client is not supported for re-authentication of "
        "mechanism 'ONE'"
    )


def test_a_wrong_password_at_the_re_authentication_is_named_so() -> None:
    found = authenticating_again()
    answer = found.stepped(found.step(b"no"), NOW + 5, WALL)
    assert answer.message == (
        "Authentication failed during re-authentication due to invalid credentials with SASL "
        "mechanism ONE"
    )
    assert found.state is State.FAILED


# ------------------------------------------------------------------------------ any order at all


class AnyOrder(RuleBasedStateMachine):
    """Whatever a client sends, nothing is served before the right token, nor after a failure."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.connect()

    def connect(self) -> None:
        self.found = dialogue(10.0)
        self.is_known = False
        self.is_closed = False
        self.states = [self.found.state]

    @rule(
        api_key=st.sampled_from([VERSIONS, HANDSHAKE, AUTHENTICATE, METADATA]),
        version=st.integers(0, 1),
        mechanism=st.sampled_from(["ONE", "TWO", "SLOW", "X"]),
        token=st.sampled_from(["ok alice", "ok bob", "ok alice 5", "more", "no"]),
        pause=st.sampled_from([0.0, 0.5, 1.0, 9.0, 20.0]),
    )
    def request(self, api_key: int, version: int, mechanism: str, token: str, pause: float) -> None:
        if self.is_closed:
            self.connect()
        found = self.found
        self.now += pause
        if found.state is not State.RAW_TOKENS:
            try:
                found.check(api_key, True, self.now)
            except DialogueError:
                self.is_closed = True
                return
            if found.state is State.AUTHENTICATED and api_key != HANDSHAKE:
                assert self.is_known
                return
        if found.state in (State.TOKENS, State.RAW_TOKENS):
            before = found.principal
            answer = found.stepped(found.step(token.encode()), self.now, WALL + self.now - NOW)
            self.is_known = self.is_known or found.state is State.AUTHENTICATED
            assert (answer.error_code != ErrorCode.NONE) is (found.state is State.FAILED)
            assert before in (None, found.principal)
        elif api_key == HANDSHAKE:
            found.handshake(version, mechanism, self.now)
        self.is_closed = found.state is State.FAILED
        self.states.append(found.state)

    @invariant()
    def a_principal_is_known_only_after_the_right_token(self) -> None:
        assert (self.found.principal is not None) is self.is_known

    @invariant()
    def tokens_come_before_the_authentication(self) -> None:
        for before, after in pairwise(self.states):
            if after is State.AUTHENTICATED:
                assert before in (State.TOKENS, State.RAW_TOKENS, State.AUTHENTICATED)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=200, stateful_step_count=20, deadline=None)


def test_a_failure_that_a_challenge_announces_is_logged_with_the_challenge() -> None:
    found = after_handshake()
    answer = found.stepped(Challenge(b"error", failure="the token is invalid"), NOW, WALL)
    assert (answer.error_code, answer.token) == (ErrorCode.NONE, b"error")
    assert answer.reason == "the token is invalid"
    last = found.stepped(Rejected("", "error"), NOW, WALL)
    assert (last.error_code, last.message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, "error")
    assert last.reason == ""
