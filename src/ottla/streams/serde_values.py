"""Serdes for Python values, the counterpart of `compile.codecs` for columns."""

from __future__ import annotations

import json
from typing import Any

from ottla.streams.errors import TopologyError
from ottla.streams.serdes import Serde

LONG_BYTES = 8


def encode_value(serde: Serde, value: Any) -> bytes | None:
    """Encode a key or value. Bytes are returned unchanged."""
    if value is None or isinstance(value, bytes):
        return value
    match serde.name:
        case "string":
            return str(value).encode()
        case "long":
            return int(value).to_bytes(LONG_BYTES, "big", signed=True)
        case "json":
            return json.dumps(value, default=str).encode()
    raise TopologyError(f"expected bytes, not {value!r}")


def decode_value(serde: Serde, data: bytes | None) -> Any:
    if data is None or serde.name == "bytes":
        return data
    if serde.name == "string":
        return data.decode()
    if serde.name == "long":
        return int.from_bytes(data, "big", signed=True)
    return json.loads(data)


def index_key(serde: Serde, data: bytes) -> bytes:
    """Return a canonical form of a key's bytes: the same JSON can be written in many ways."""
    if serde.name != "json":
        return data
    parsed = json.loads(data)
    return json.dumps(parsed, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
