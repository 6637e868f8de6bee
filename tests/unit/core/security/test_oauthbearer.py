"""The first message of SASL/OAUTHBEARER."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.core.security.oauthbearer import (
    MAX_EXTENSIONS,
    MAX_RESPONSE_BYTES,
    MalformedResponse,
    parse_initial_response,
)


def test_the_message_of_librdkafka_is_parsed() -> None:
    found = parse_initial_response(b"n,,\x01auth=Bearer a.b-c.d_e\x01\x01")
    assert (found.token, found.authorization_id, found.extensions) == ("a.b-c.d_e", "", {})


def test_extensions_and_the_authorization_id_are_parsed() -> None:
    message = b"n,a=al=2Cice=3D,\x01logicalCluster=lkc-1\x01auth=bearer  t\x01pool=a=b c\x01\x01"
    found = parse_initial_response(message)
    assert found.token == "t"
    assert found.authorization_id == "al,ice="
    assert found.extensions == {"logicalCluster": "lkc-1", "pool": "a=b c"}


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer t\x01",
        b"n,,\x01auth=Bearer t\x01\x01\x01",
        b"n,,\x01auth=Bearer t\x01\x01more",
        b"y,,\x01auth=Bearer t\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer t\x01\x01",
        b"n,a=,\x01auth=Bearer t\x01\x01",
        b"n,a=a=2Db,\x01auth=Bearer t\x01\x01",
        b"n,u=alice,\x01auth=Bearer t\x01\x01",
        b"n,,\x01auth=Basic t\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer t t\x01\x01",
        b"n,,\x01auth=Bearer t+/=\x01\x01",
        b"n,,\x01other=Bearer t\x01\x01",
        b"n,,\x01auth=Bearer t\x01auth=Bearer u\x01\x01",
        b"n,,\x01auth=Bearer t\x01key1=v\x01\x01",
        b"n,,\x01auth=Bearer t\x01key=\x01\x01",
        b"n,,\x01auth=Bearer t\x01key=\xc3\xa4\x01\x01",
        b"n,,\x01auth=Bearer t\x01key=a\x00b\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
    ],
)
def test_a_malformed_message_is_rejected(message: bytes) -> None:
    with pytest.raises(MalformedResponse):
        parse_initial_response(message)


def with_extensions(count: int) -> bytes:
    names = (chr(97 + each // 26) + chr(97 + each % 26) for each in range(count))
    return b"n,,\x01auth=Bearer t\x01" + b"".join(f"{n}=v\x01".encode() for n in names) + b"\x01"


def test_the_number_of_extensions_is_bounded() -> None:
    assert len(parse_initial_response(with_extensions(MAX_EXTENSIONS)).extensions) == 64
    with pytest.raises(MalformedResponse):
        parse_initial_response(with_extensions(MAX_EXTENSIONS + 1))


def test_the_size_of_the_message_is_bounded() -> None:
    with pytest.raises(MalformedResponse, match="bytes"):
        parse_initial_response(b"n,,\x01auth=Bearer " + b"t" * MAX_RESPONSE_BYTES + b"\x01\x01")


def test_the_representation_has_no_token() -> None:
    assert "secret" not in repr(parse_initial_response(b"n,,\x01auth=Bearer secret\x01\x01"))


@given(st.lists(st.sampled_from([b"n,,", b"\x01", b"auth=", b"Bearer ", b"t", b"a=b", b"=", b","])))
def test_any_message_is_parsed_or_rejected(pieces: list[bytes]) -> None:
    try:
        assert parse_initial_response(b"".join(pieces)).token
    except MalformedResponse:
        pass
