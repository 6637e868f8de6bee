"""The principal in an Envelope, compared with kio's codec."""

from __future__ import annotations

import struct

import pytest
from kio.schema.default_principal_data.v0 import DefaultPrincipalData
from kio.serial import entity_writer

from ottla.wire.compile import DecodeError
from ottla.wire.principal_data import PrincipalData, decode_principal, encode_principal

EXAMPLES = [
    PrincipalData("User", "ANONYMOUS"),
    PrincipalData("User", "CN=Müller,O=x" * 30, token_authenticated=True),
    PrincipalData("", ""),
]


@pytest.mark.parametrize("principal", EXAMPLES)
def test_principals_are_encoded_as_in_kafka(principal: PrincipalData) -> None:
    encoded = bytearray(struct.pack(">h", 0))
    message = DefaultPrincipalData(
        type_=principal.type,
        name=principal.name,
        token_authenticated=principal.token_authenticated,
    )

    class Stream:
        write = staticmethod(encoded.extend)

    entity_writer(DefaultPrincipalData)(Stream, message)  # type: ignore[arg-type]
    assert encode_principal(principal) == bytes(encoded)
    assert decode_principal(bytes(encoded)) == principal


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\0",
        b"\0\0",
        b"\0\1\5User\2a\0\0",
        b"\xff\xff\5User\2a\0\0",
        b"\0\0\5User\x7fa\0\0",
        b"\0\0\0\0\0\0",
        b"\0\0\2\xff\2a\0\0",
    ],
)
def test_damaged_principals_are_refused(damaged: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_principal(damaged)


def test_every_prefix_of_a_principal_is_refused() -> None:
    encoded = encode_principal(EXAMPLES[0])
    for size in range(len(encoded)):
        with pytest.raises(DecodeError):
            decode_principal(encoded[:size])
