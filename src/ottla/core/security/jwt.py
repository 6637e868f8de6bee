"""JSON Web Tokens: parsing, and the checks of a token's header and claims (RFC 7519, KIP-768).

The signature is verified elsewhere, because that takes keys and a library. Nothing here trusts a
token: sizes are bounded, unknown critical extensions and symmetric algorithms are refused, and
keys or URLs in a token's header are ignored.

Reasons for a rejection are for the broker's log. A client only sees that its token is invalid.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, TypeAlias

MAX_TOKEN_BYTES = 64 * 1024
MAX_HEADER_LENGTH = 16 * 1024
"""Limit of the encoded header, which is parsed before the signature is verified."""
MAX_KEY_ID_LENGTH = 1000
"""Kafka's limit."""
MAX_DATE = 253_402_300_799
"""The end of the year 9999, in seconds since 1970."""
ALGORITHMS = frozenset(
    {
        *("RS256", "RS384", "RS512"),
        *("PS256", "PS384", "PS512"),
        *("ES256", "ES384", "ES512"),
        "EdDSA",
    }
)
"""Signature algorithms that are accepted. All are asymmetric: with HS256, everybody who knows the
public key could sign tokens."""

_BASE64URL = re.compile(r"[A-Za-z0-9_-]*")
_NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Control characters, other ends of lines, and halves of characters, which JSON can contain but
UTF-8 cannot."""
_SHOWN_CHARACTERS = 100

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"


class TokenRejected(Exception):
    """A token is invalid. The message is a reason for the broker's log."""


@dataclass(frozen=True, slots=True)
class UnverifiedToken:
    """The parts of a token whose signature has not been verified. The representation contains
    nothing that could be used to log in."""

    algorithm: str
    key_id: str | None
    payload: str = field(repr=False)
    """The encoded claims."""
    signed: bytes = field(repr=False)
    """The bytes that the signature covers."""
    signature: bytes = field(repr=False)

    @property
    def claims(self) -> Mapping[str, Json]:
        """The claims, parsed on each access; verify the signature first.

        Parsing takes milliseconds for a large token, which a client that is not authenticated must
        not cause.

        Raises:
            TokenRejected: The claims are malformed.
        """
        return _decoded_object(self.payload, "payload")


@dataclass(frozen=True, slots=True)
class TokenPolicy:
    """The properties of a listener that decide which tokens it accepts."""

    issuer: str | None
    """Required value of the claim `iss`; None accepts every issuer."""
    audiences: frozenset[str]
    """Accepted values of the claim `aud`; if empty, every audience is accepted."""
    clock_skew_s: int = 30
    scope_claim: str = "scope"
    subject_claim: str = "sub"


@dataclass(frozen=True, slots=True)
class TokenFacts:
    """The facts that a broker takes from a valid token."""

    subject: str
    expires_at: float
    """Time when a session with the token ends, in seconds since 1970."""
    scopes: frozenset[str] = frozenset()


def parse_token(token: str) -> UnverifiedToken:
    """Parse a signed token in compact form, except for its claims.

    Raises:
        TokenRejected: The token is malformed, or its algorithm is not accepted.
    """
    if len(token) > MAX_TOKEN_BYTES:
        raise TokenRejected(f"the token has more than {MAX_TOKEN_BYTES} bytes")
    parts = token.split(".", 3)
    if len(parts) != 3:
        raise TokenRejected("the token is not a signed JWT")
    if len(parts[0]) > MAX_HEADER_LENGTH:
        raise TokenRejected(f"the header of the token has more than {MAX_HEADER_LENGTH} bytes")
    if not _BASE64URL.fullmatch(parts[1]):
        raise TokenRejected("the payload of the token is not base64url")
    header = _decoded_object(parts[0], "header")
    algorithm, key_id = _checked_header(header)
    return UnverifiedToken(
        algorithm=algorithm,
        key_id=key_id,
        payload=parts[1],
        signed=f"{parts[0]}.{parts[1]}".encode("ascii"),
        signature=_decoded(parts[2], "signature"),
    )


def check_claims(claims: Mapping[str, Json], policy: TokenPolicy, now: float) -> TokenFacts:
    """Check the claims of a token whose signature has been verified.

    Args:
        claims: The claims.
        policy: The properties of the listener.
        now: Time in seconds since 1970.

    Raises:
        TokenRejected: A claim is missing, malformed or not acceptable.
    """
    _check_issuer(claims, policy)
    _check_audience(claims, policy)
    return TokenFacts(
        subject=_subject(claims, policy.subject_claim),
        expires_at=_expiry(claims, policy.clock_skew_s, now),
        scopes=_scopes(claims.get(policy.scope_claim), policy.scope_claim),
    )


# ---------------------------------------------------------------------------------------- parsing


def _checked_header(header: Mapping[str, Json]) -> tuple[str, str | None]:
    """Return the algorithm and the key ID."""
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise TokenRejected(f"the algorithm {_shown(algorithm)} is not accepted")
    if "crit" in header:
        raise TokenRejected("the token has critical extensions")
    if "kid" in header and not isinstance(key_id, str):
        raise TokenRejected("the key ID is not a string")
    if isinstance(key_id, str) and len(key_id) > MAX_KEY_ID_LENGTH:
        raise TokenRejected(f"the key ID has more than {MAX_KEY_ID_LENGTH} characters")
    return algorithm, key_id if isinstance(key_id, str) else None


def _decoded(part: str, what: str) -> bytes:
    problem = f"the {what} of the token is not in base64url"
    if not part or not _BASE64URL.fullmatch(part):
        raise TokenRejected(problem)
    try:
        decoded = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except binascii.Error:
        raise TokenRejected(problem) from None
    # The last character may have unused bits. With other values, it would be the same token in
    # another form.
    if base64.urlsafe_b64encode(decoded).rstrip(b"=").decode("ascii") != part:
        raise TokenRejected(problem)
    return decoded


def _decoded_object(part: str, what: str) -> dict[str, Json]:
    try:
        found = json.loads(
            _decoded(part, what).decode("utf-8"),
            object_pairs_hook=_without_duplicates,
            parse_constant=_refuse_constant,
        )
    except (ValueError, RecursionError):
        raise TokenRejected(f"the {what} of the token is not a JSON object") from None
    if not isinstance(found, dict):
        raise TokenRejected(f"the {what} of the token is not a JSON object")
    return found


def _without_duplicates(pairs: Sequence[tuple[str, Json]]) -> dict[str, Json]:
    # Parsers disagree about which of two members with the same name counts.
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("duplicate member")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# ----------------------------------------------------------------------------------------- claims


def _check_issuer(claims: Mapping[str, Json], policy: TokenPolicy) -> None:
    if policy.issuer is not None and claims.get("iss") != policy.issuer:
        raise TokenRejected(f"the issuer is {_shown(claims.get('iss'))}, not {policy.issuer!r}")


def _check_audience(claims: Mapping[str, Json], policy: TokenPolicy) -> None:
    audience = claims.get("aud")
    found = audience if isinstance(audience, list) else [audience]
    if policy.audiences and not any(
        isinstance(each, str) and each in policy.audiences for each in found
    ):
        raise TokenRejected(f"the audience is {_shown(audience)}")


def _expiry(claims: Mapping[str, Json], skew_s: int, now: float) -> float:
    expires_at, issued_at = _date(claims, "exp"), _date(claims, "iat")
    if expires_at is None:
        raise TokenRejected("the claim exp is missing")
    if issued_at is None:
        raise TokenRejected("the claim iat is missing")
    valid_from = _date(claims, "nbf")
    if now - skew_s >= expires_at:
        raise TokenRejected(f"the token expired {now - expires_at:.0f} s ago")
    for name, date in (("iat", issued_at), ("nbf", valid_from)):
        if date is None:
            continue
        if date > now + skew_s:
            raise TokenRejected(f"the claim {name} is {date - now:.0f} s in the future")
        if date > expires_at:
            raise TokenRejected(f"the claim {name} is later than exp")
    # By the issuer's clock, a token that has just expired here may still be valid.
    return expires_at if expires_at > now else expires_at + skew_s


def _date(claims: Mapping[str, Json], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenRejected(f"the claim {name} is not a number")
    if not 0 <= value <= MAX_DATE or not math.isfinite(value):
        raise TokenRejected(f"the claim {name} is out of range")
    return float(value)


def _subject(claims: Mapping[str, Json], name: str) -> str:
    value = claims.get(name)
    subject = value.strip() if isinstance(value, str) else ""
    if not subject:
        raise TokenRejected(f"the claim {name}, which names the principal, is missing or empty")
    if _NOT_IN_NAMES.search(subject):
        raise TokenRejected(f"the claim {name} has control characters")
    return subject


def _scopes(value: Json, name: str) -> frozenset[str]:
    if value is None:
        return frozenset()
    # A string is a list that is separated by spaces (RFC 6749); some issuers send a JSON array.
    items: list[str] = []
    for each in (
        value.split() if isinstance(value, str) else value if isinstance(value, list) else [None]
    ):
        if not isinstance(each, str) or not each.strip():
            raise TokenRejected(f"the claim {name} is malformed")
        items.append(each.strip())
    return frozenset(items)


def _shown(value: Json) -> str:
    """Return a value of an untrusted token for a log line."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
