"""JSON Web Tokens: parsing, and the checks of header and claims."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from ottla.core.security.jwt import (
    MAX_TOKEN_BYTES,
    TokenPolicy,
    TokenRejected,
    check_claims,
    parse_token,
)

NOW = 1_700_000_000.0
POLICY = TokenPolicy(issuer="https://idp", audiences=frozenset({"kafka", "other"}))


def encode(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def token(header: object, claims: object = {}, signature: str = "c2ln") -> str:
    return f"{encode(header)}.{encode(claims)}.{signature}"


def claims(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "iss": "https://idp",
        "aud": "kafka",
        "sub": "alice",
        "iat": NOW - 10,
        "exp": NOW + 100,
    }
    found.update(changes)
    return {name: value for name, value in found.items() if value is not ...}


def test_a_token_is_parsed_into_its_parts() -> None:
    text = token({"alg": "RS256", "kid": "k1"}, {"sub": "alice"})

    found = parse_token(text)

    assert (found.algorithm, found.key_id) == ("RS256", "k1")
    assert found.claims == {"sub": "alice"}
    assert found.signed.decode() == text.rpartition(".")[0]
    assert found.signature == b"sig"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not a signed JWT"),
        ("a.b", "not a signed JWT"),
        ("a.b.c.d", "not a signed JWT"),
        (token({"alg": "RS256"}, signature=""), "signature"),
        (token({"alg": "RS256"}, signature="a+b="), "signature"),
        (token({"alg": "RS256"}, signature="a"), "signature"),
        (token({"alg": "RS256"}, signature="c2l="), "signature"),
        (token({"alg": "RS256"}, signature="c2k9c2h"), "signature"),
        (token("[]"), "header"),
        (token("nonsense"), "header"),
        (token({"alg": "RS256"}, "[1]"), "payload"),
        (token({"alg": "RS256"}, '{"exp": NaN}'), "payload"),
        (token({"alg": "RS256"}, '{"sub": "a", "sub": "b"}'), "payload"),
        (token({"alg": "RS256"}, "[" * 40_000), "payload"),
        (token({"alg": "RS256"}, '{"exp": ' + "9" * 5_000 + "}"), "payload"),
        (token({}), "algorithm None"),
        (token({"alg": "none"}, signature=""), "algorithm 'none'"),
        (token({"alg": "None"}), "algorithm 'None'"),
        (token({"alg": "HS256"}), "algorithm 'HS256'"),
        (token({"alg": ["RS256"]}), "algorithm"),
        (token({"alg": "RS256", "crit": ["b64"], "b64": False}), "critical"),
        (token({"alg": "RS256", "kid": 7}), "key ID"),
        (token({"alg": "RS256", "kid": "k" * 1001}), "key ID"),
        ("a" * (MAX_TOKEN_BYTES + 1), "bytes"),
        (token({"alg": "x" * 10_000}), "…"),
    ],
)
def test_a_malformed_token_is_rejected(text: str, reason: str) -> None:
    with pytest.raises(TokenRejected, match=reason) as raised:
        _ = parse_token(text).claims
    assert len(str(raised.value)) < 200


def test_claims_are_not_parsed_before_the_signature_is_verified() -> None:
    found = parse_token(token({"alg": "RS256"}, "[" * 40_000))

    with pytest.raises(TokenRejected, match="payload"):
        _ = found.claims


def test_a_token_with_a_large_header_is_rejected_before_it_is_parsed() -> None:
    with pytest.raises(TokenRejected, match="header of the token has more than"):
        parse_token(token({"alg": "RS256", "x": "y" * 20_000}))


def test_an_undecodable_token_is_rejected() -> None:
    broken = base64.urlsafe_b64encode(b'{"alg": "\xff"}').rstrip(b"=").decode()
    with pytest.raises(TokenRejected, match="header"):
        parse_token(f"{broken}.e30.c2ln")


def test_the_representation_of_a_token_has_no_claims_and_no_signature() -> None:
    found = parse_token(token({"alg": "RS256"}, {"sub": "alice"}))
    assert "alice" not in repr(found)
    assert "sig'" not in repr(found)


def test_valid_claims_give_subject_expiry_and_scopes() -> None:
    found = check_claims(claims(sub=" alice ", scope="read write"), POLICY, NOW)

    assert found.subject == "alice"
    assert found.expires_at == NOW + 100
    assert found.scopes == {"read", "write"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"iss": "https://evil"}, "issuer is 'https://evil'"),
        ({"iss": ...}, "issuer is None"),
        ({"iss": ["https://idp"]}, "issuer"),
        ({"aud": "payroll"}, "audience is 'payroll'"),
        ({"aud": ...}, "audience is None"),
        ({"aud": ["payroll", 7]}, "audience"),
        ({"exp": ...}, "exp is missing"),
        ({"exp": NOW - 31}, "expired 31 s ago"),
        ({"exp": "soon"}, "exp is not a number"),
        ({"exp": True}, "exp is not a number"),
        ({"exp": 1e300}, "exp is out of range"),
        ({"exp": -1}, "exp is out of range"),
        ({"iat": ...}, "iat is missing"),
        ({"iat": NOW + 31}, "iat is 31 s in the future"),
        ({"nbf": NOW + 31}, "nbf is 31 s in the future"),
        ({"exp": NOW - 20, "iat": NOW - 10}, "iat is later than exp"),
        ({"sub": ...}, "sub, which names the principal, is missing"),
        ({"sub": " "}, "sub, which names the principal, is missing"),
        ({"sub": 7}, "sub, which names the principal, is missing"),
        ({"sub": "a\nb"}, "control characters"),
        ({"sub": "a\u2028b"}, "control characters"),
        ({"sub": "a\x85b"}, "control characters"),
        ({"sub": "a\ud800b"}, "control characters"),
        ({"scope": 7}, "scope is malformed"),
        ({"scope": ["read", 7]}, "scope is malformed"),
        ({"scope": ["read", " "]}, "scope is malformed"),
    ],
)
def test_unacceptable_claims_are_rejected(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(TokenRejected, match=reason):
        check_claims(claims(**changes), POLICY, NOW)


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": NOW - 29, "iat": NOW - 60},
        {"iat": NOW + 29},
        {"nbf": NOW + 29},
        {"nbf": NOW - 5},
        {"aud": ["payroll", "other"]},
        {"scope": ["read", "write"]},
        {"scope": ""},
    ],
)
def test_claims_within_the_limits_are_accepted(changes: dict[str, Any]) -> None:
    assert check_claims(claims(**changes), POLICY, NOW).subject == "alice"


def test_names_of_claims_can_be_changed() -> None:
    policy = TokenPolicy(None, frozenset(), scope_claim="roles", subject_claim="client_id")
    found = check_claims(claims(client_id="app", roles=["admin"]), policy, NOW)
    assert (found.subject, found.scopes) == ("app", {"admin"})


def test_without_expected_issuer_and_audience_all_are_accepted() -> None:
    policy = TokenPolicy(None, frozenset())
    assert check_claims(claims(iss=..., aud="payroll"), policy, NOW).subject == "alice"
