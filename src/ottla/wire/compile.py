"""Generation of Python code from message schemas: one reader and one writer per struct.

Code is generated because a loop over field descriptions is several times slower than the code one
would write by hand for each of the roughly 900 structs. kio's native reader cannot be used for
bytes from the network: it allocates memory for any array length that the bytes claim, and a claim
of two billion aborts the process.

A reader trusts nothing. It checks lengths against the available bytes before it allocates anything,
and limits the number of elements in all arrays of a message, because an element can be a few bytes
on the wire and hundreds in memory. It raises only the exceptions in `MALFORMED`.

A writer is called as `write(append, values)` with a dict of values. It appends pieces of bytes; the
value of a `records` field is appended without copying.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import cache
from itertools import groupby
from typing import Any, TypeAlias

from ottla.wire.schema import MessageField, Struct

Reader: TypeAlias = Callable[[memoryview, int, int, list[int]], tuple[Any, int]]
"""(buffer, position, end, [number of array elements left]) -> (message, position)"""
Writer: TypeAlias = Callable[[Callable[[Any], None], Any], None]

_FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
_ONE_BYTE = [bytes([value]) for value in range(128)]


class DecodeError(ValueError):
    """The bytes are not a valid message of the expected type."""


MALFORMED = (DecodeError, struct.error, UnicodeDecodeError, IndexError)


def encode_uvarint(value: int) -> bytes:
    if value < 128:
        return _ONE_BYTE[value]
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def decode_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
        if shift > 28:
            raise DecodeError("a length takes more than five bytes")


def skip_tagged_fields(buffer: memoryview, position: int, end: int) -> int:
    count, position = decode_uvarint(buffer, position)
    for _ in range(count):
        _, position = decode_uvarint(buffer, position)
        size, position = decode_uvarint(buffer, position)
        position += size
        if position > end:
            raise DecodeError("a tagged field extends beyond the message")
    return position


_SECRET_FIELDS = frozenset({"auth_bytes", "hmac", "salt", "salted_password"})
"""Fields with credentials, which representations must not show: they could end up in a log."""


class Message:
    """A decoded struct, with its fields as attributes.

    Fields that the version of the message does not have are attributes of the class, with the
    defaults of the newest schema. (A `__getattr__` could do that as well, but would make every
    other access three times slower.)
    """

    def __repr__(self) -> str:
        inner = ", ".join(
            f"{name}={'[hidden]' if name in _SECRET_FIELDS else repr(value)}"
            for name, value in vars(self).items()
        )
        return f"{type(self).__name__}({inner})"


def _min_size(field: MessageField, flexible: bool) -> int:
    """Return the minimum encoded size of one element of the field's type."""
    if field.type in _FIXED:
        return struct.calcsize(">" + _FIXED[field.type])
    if field.struct is not None:
        sizes = [
            (1 if flexible else 4) if inner.array else _min_size(inner, flexible)
            for inner in field.struct.body
        ]
        return max(1, sum(sizes) + (1 if flexible else 0))
    return 1 if flexible else 2 if field.type == "string" else 4


class _Source:
    """The lines of a generated function and the objects to which it refers."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}

    def add(self, indent: int, *lines: str) -> None:
        self.lines.extend("    " * indent + line for line in lines)

    def bind(self, stem: str, value: Any) -> str:
        name = f"{stem}_{len(self.names)}"
        self.names[name] = value
        return name

    def function(self, name: str) -> Any:
        source = "\n".join(self.lines)
        exec(compile(source, f"<ottla.wire {name}>", "exec"), self.names)
        return self.names[name]


def _fixed_runs(fields: Iterable[MessageField]) -> Iterable[tuple[bool, list[MessageField]]]:
    """Group adjacent fields of fixed size, which one struct call can read or write."""
    for fixed, run in groupby(fields, lambda field: field.type in _FIXED and not field.array):
        yield fixed, list(run)


# ------------------------------------------------------------------------------------- readers


def compile_reader(schema: Struct, message_class: Callable[[str], type[Message]]) -> Reader:
    """Generate a reader for a struct.

    Args:
        schema: The struct to read.
        message_class: Returns the class to instantiate for the name of a struct.
    """

    @cache
    def reader_of(schema: Struct) -> Reader:
        source = _Source()
        source.names.update(
            Class=message_class(schema.name),
            DecodeError=DecodeError,
            decode_uvarint=decode_uvarint,
            skip_tagged_fields=skip_tagged_fields,
            unpack_h=struct.Struct(">h").unpack_from,
            unpack_i=struct.Struct(">i").unpack_from,
        )
        source.add(0, "def read(b, p, end, left):")
        source.add(1, "m = Class()")
        for fixed, run in _fixed_runs(schema.body):
            if fixed:
                _read_fixed(source, run)
            else:
                for field in run:
                    _read_variable(source, 1, field, schema.flexible, reader_of)
        if schema.flexible:
            _read_tagged(source, schema, reader_of)
        source.add(1, "return m, p")
        reader: Reader = source.function("read")
        return reader

    return reader_of(schema)


def _read_fixed(source: _Source, run: list[MessageField]) -> None:
    layout = struct.Struct(">" + "".join(_FIXED[field.type] for field in run))
    unpack = source.bind("unpack", layout.unpack_from)
    targets = ", ".join(f"m.{field.name}" for field in run)
    source.add(1, f"{targets}, = {unpack}(b, p)", f"p += {layout.size}")


def _read_length(source: _Source, indent: int, field: MessageField, flexible: bool) -> None:
    """Read the length of a string, byte string or array into `n`; negative for null."""
    if flexible:
        source.add(indent, "n = b[p]", "if n < 128: p += 1")
        source.add(indent, "else: n, p = decode_uvarint(b, p)", "n -= 1")
    elif field.type == "string" and not field.array:
        source.add(indent, "n, = unpack_h(b, p)", "p += 2")
    else:
        source.add(indent, "n, = unpack_i(b, p)", "p += 4")


def _read_variable(
    source: _Source,
    indent: int,
    field: MessageField,
    flexible: bool,
    reader_of: Callable[[Struct], Reader],
) -> None:
    target = f"m.{field.name}"
    if field.struct is not None and not field.array:
        read = source.bind("read", reader_of(field.struct))
        if field.nullable:
            source.add(indent, "p += 1", f"if b[p - 1] > 127: {target} = None")
            source.add(indent, f"else: {target}, p = {read}(b, p, end, left)")
        else:
            source.add(indent, f"{target}, p = {read}(b, p, end, left)")
        return
    _read_length(source, indent, field, flexible)
    source.add(indent, "if n < 0:")
    if field.nullable or field.type == "records":
        source.add(indent + 1, f"{target} = None")
    else:
        source.add(indent + 1, f"raise DecodeError('{field.name} must not be null')")
    source.add(indent, "else:")
    if field.array:
        _read_elements(source, indent + 1, field, flexible, reader_of)
    else:
        source.add(indent + 1, "q = p + n", "if q > end:")
        source.add(indent + 2, f"raise DecodeError('{field.name} extends beyond the message')")
        source.add(indent + 1, f"{target} = {_slice(field.type, 'p', 'q')}", "p = q")


def _slice(kafka_type: str, start: str, stop: str) -> str:
    match kafka_type:
        case "string":
            return f"str(b[{start}:{stop}], 'utf-8')"
        case "bytes":
            return f"bytes(b[{start}:{stop}])"
        case _:
            return f"b[{start}:{stop}]"


def _read_elements(
    source: _Source,
    indent: int,
    field: MessageField,
    flexible: bool,
    reader_of: Callable[[Struct], Reader],
) -> None:
    source.add(indent, "left[0] -= n")
    source.add(indent, f"if n * {_min_size(field, flexible)} > end - p or left[0] < 0:")
    source.add(indent + 1, f"raise DecodeError(f'{field.name} claims {{n}} elements')")
    if field.type in _FIXED:
        size = struct.calcsize(">" + _FIXED[field.type])
        unpack = source.bind("unpack", struct.unpack_from)
        source.add(
            indent, f"m.{field.name} = list({unpack}('>' + '{_FIXED[field.type]}' * n, b, p))"
        )
        source.add(indent, f"p += n * {size}")
        return
    source.add(indent, f"m.{field.name} = a = []", "add = a.append", "for _ in range(n):")
    if field.struct is not None:
        read = source.bind("read", reader_of(field.struct))
        source.add(indent + 1, f"e, p = {read}(b, p, end, left)", "add(e)")
        return
    element = MessageField("element", field.type, None, False, False, None, None)
    _read_length(source, indent + 1, element, flexible)
    source.add(indent + 1, "q = p + n", "if n < 0 or q > end:")
    source.add(indent + 2, f"raise DecodeError('{field.name} contains an invalid element')")
    source.add(indent + 1, f"add({_slice(field.type, 'p', 'q')})", "p = q")


def _read_tagged(source: _Source, schema: Struct, reader_of: Callable[[Struct], Reader]) -> None:
    if not schema.tagged:
        source.add(1, "if b[p] == 0: p += 1", "else: p = skip_tagged_fields(b, p, end)")
        return
    source.add(1, "tags, p = decode_uvarint(b, p)", "for _ in range(tags):")
    source.add(2, "tag, p = decode_uvarint(b, p)", "size, p = decode_uvarint(b, p)")
    source.add(2, "field_end = p + size", "if field_end > end:")
    source.add(3, "raise DecodeError('a tagged field extends beyond the message')")
    for field in schema.tagged:
        source.add(2, f"if tag == {field.tag}:")
        if field.type in _FIXED and not field.array:
            layout = struct.Struct(">" + _FIXED[field.type])
            unpack = source.bind("unpack", layout.unpack_from)
            source.add(3, f"m.{field.name}, = {unpack}(b, p)")
        else:
            _read_variable(source, 3, field, schema.flexible, reader_of)
    source.add(2, "p = field_end")


# ------------------------------------------------------------------------------------- writers


def compile_writer(schema: Struct, known_names: Callable[[str], frozenset[str]] | None) -> Writer:
    """Generate a writer for a struct.

    Args:
        schema: The struct to write.
        known_names: Returns every field name of any version of a struct. If given, the writer
            rejects other keys; otherwise it ignores keys that its version does not have.
    """

    @cache
    def writer_of(schema: Struct) -> Writer:
        source = _Source()
        source.names.update(
            uvarint=encode_uvarint,
            pack_h=struct.Struct(">h").pack,
            pack_i=struct.Struct(">i").pack,
            check_keys=_check_keys,
            join=b"".join,
        )
        source.add(0, "def write(w, d):")
        if known_names is not None:
            known = source.bind("known", known_names(schema.name))
            source.add(1, f"check_keys(d, {known}, '{schema.name}')")
        source.add(1, "g = d.get")
        for fixed, run in _fixed_runs(schema.body):
            if fixed:
                layout = struct.Struct(">" + "".join(_FIXED[field.type] for field in run))
                pack = source.bind("pack", layout.pack)
                source.add(1, f"w({pack}({', '.join(_get(source, field) for field in run)}))")
            else:
                for field in run:
                    source.add(1, f"v = {_get(source, field)}")
                    _write_variable(source, 1, field, schema.flexible, writer_of)
        if schema.flexible:
            _write_tagged(source, schema, writer_of)
        if len(source.lines) == (2 if known_names is None else 3):
            source.add(1, "return")
        writer: Writer = source.function("write")
        return writer

    return writer_of(schema)


def _check_keys(values: dict[str, Any], known: frozenset[str], name: str) -> None:
    unknown = values.keys() - known
    if unknown:
        raise KeyError(f"{name} has no field {', '.join(sorted(unknown))} in any version")


def _get(source: _Source, field: MessageField) -> str:
    default = field.default
    if default is None or isinstance(default, bool | int | str | bytes) or default == ():
        return f"g('{field.name}', {default!r})"
    return f"g('{field.name}', {source.bind('default', default)})"


def _length(field: MessageField, flexible: bool, length: str) -> str:
    if flexible:
        return f"uvarint({length} + 1)"
    pack = "pack_h" if field.type == "string" and not field.array else "pack_i"
    return f"{pack}({length})"


def _write_variable(
    source: _Source,
    indent: int,
    field: MessageField,
    flexible: bool,
    writer_of: Callable[[Struct], Writer],
) -> None:
    """Generate code that writes the variable `v`."""
    if field.struct is not None and not field.array:
        write = source.bind("write", writer_of(field.struct))
        if field.nullable:
            source.add(indent, "if v is None: w(b'\\xff')", f"else: w(b'\\x01'); {write}(w, v)")
        else:
            source.add(indent, f"{write}(w, v)")
        return
    source.add(indent, "if v is None:")
    if field.nullable or field.type == "records":
        source.add(indent + 1, f"w({_length(field, flexible, '-1')})")
    else:
        source.add(indent + 1, f"raise ValueError('{field.name} must not be null')")
    source.add(indent, "else:")
    if field.array:
        _write_elements(source, indent + 1, field, flexible, writer_of)
    elif field.type == "string":
        source.add(indent + 1, "v = v.encode()", f"w({_length(field, flexible, 'len(v)')} + v)")
    else:
        source.add(indent + 1, f"w({_length(field, flexible, 'len(v)')})", "w(v)")


def _write_elements(
    source: _Source,
    indent: int,
    field: MessageField,
    flexible: bool,
    writer_of: Callable[[Struct], Writer],
) -> None:
    source.add(indent, f"w({_length(field, flexible, 'len(v)')})")
    if field.struct is not None:
        write = source.bind("write", writer_of(field.struct))
        source.add(indent, "for e in v:", f"    {write}(w, e)")
    elif field.type in _FIXED:
        pack = source.bind("pack", struct.pack)
        source.add(indent, f"w({pack}('>' + '{_FIXED[field.type]}' * len(v), *v))")
    else:
        element = MessageField("element", field.type, None, False, False, None, None)
        encode = "e = e.encode(); " if field.type == "string" else ""
        source.add(indent, "for e in v:")
        source.add(indent + 1, f"{encode}w({_length(element, flexible, 'len(e)')} + e)")


def _write_tagged(source: _Source, schema: Struct, writer_of: Callable[[Struct], Writer]) -> None:
    if not schema.tagged:
        source.add(1, "w(b'\\x00')")
        return
    source.add(1, "outer = w", "tags = []")
    for field in schema.tagged:
        default = source.bind("default", field.default)
        equal = f"v == {default}"
        if field.array:
            equal = "not v" if field.default is not None else "v is None"
        source.add(1, f"v = g('{field.name}', {default})", f"if not ({equal}):")
        source.add(2, "part = []", "w = part.append")
        if field.type in _FIXED and not field.array:
            pack = source.bind("pack", struct.Struct(">" + _FIXED[field.type]).pack)
            source.add(2, f"w({pack}(v))")
        else:
            _write_variable(source, 2, field, schema.flexible, writer_of)
        source.add(2, "part = join(part)")
        source.add(2, f"tags.append(uvarint({field.tag}) + uvarint(len(part)) + part)")
    source.add(1, "outer(uvarint(len(tags)) + join(tags))")
