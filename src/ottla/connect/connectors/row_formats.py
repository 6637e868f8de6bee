"""Row formats of files: lines, CSV and JSON.

| format | a record ends with | value read | value written |
|---|---|---|---|
| lines | newline | the text | its text |
| csv | newline outside quotes | a struct of strings, by the header | a row of its fields |
| json | newline | the parsed JSON, without a schema | JSON on one line |

Empty lines are skipped in CSV and JSON. Data that cannot be read raises DataError. The functions do
no I/O.
"""

from __future__ import annotations

import csv
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.base.config.definition import ConfigType
from ottla.base.config.validator import OneOf
from ottla.connect.connectors.tailed_file import Split, split_lines
from ottla.connect.converters import as_text
from ottla.connect.data import (
    OPTIONAL_STRING,
    STRING,
    ConnectRecord,
    DataError,
    Schema,
    struct_schema,
)
from ottla.connect.definition import Settings, key
from ottla.connect.json_converter import JsonConverter

LINES, CSV, JSON = "lines", "csv", "json"
EXTENSIONS = {LINES: "txt", CSV: "csv", JSON: "jsonl"}

FORMAT_KEYS = [
    key("format", ConfigType.STRING, LINES, "Format of the file: lines, csv or json.",
        OneOf((LINES, CSV, JSON))),
    key("csv.delimiter", ConfigType.STRING, ",", "Character between cells; \\\\t is a tab."),
    key("csv.quote", ConfigType.STRING, '"',
        "Character around cells that contain a delimiter, a quote or a newline."),
    key("csv.header", ConfigType.BOOLEAN, True,
        "Whether the first row contains the names of the fields."),
    key("csv.fields", ConfigType.LIST, [], "Names of the fields; those of the header if empty."),
    key("csv.null", ConfigType.STRING, None, "Text that represents null."),
]  # fmt: skip


def check_format(settings: Settings) -> None:
    """Raise ValueError with a one-sentence message if the settings are invalid."""
    for name in ("csv.delimiter", "csv.quote"):
        if len(_character(settings[name])) != 1:
            raise ValueError(f"{name} must be a single character")
    if settings["format"] == CSV and not settings["csv.header"] and not settings["csv.fields"]:
        raise ValueError("csv.header=false requires csv.fields")


def _character(text: str) -> str:
    return "\t" if text == "\\t" else text


Read = tuple[Schema | None, Any]


class RowReader(ABC):
    """Reader of the rows of one file."""

    split: Split = staticmethod(split_lines)

    @abstractmethod
    def read(self, line: bytes) -> Read | None:
        """Return schema and value of a row, or None for a line that is not a row.

        Raises:
            DataError: The line cannot be read.
        """

    def state(self) -> dict[str, Any]:
        """Return the state that is needed to resume in the middle of the file."""
        return {}

    def resume(self, state: Mapping[str, Any]) -> None:
        return


def reader_of(settings: Settings) -> RowReader:
    if settings["format"] == CSV:
        return CsvReader(settings)
    return JsonReader() if settings["format"] == JSON else LineReader()


def _text(line: bytes) -> str:
    try:
        return line.removesuffix(b"\r").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"a line is not UTF-8: {error.reason}") from None


class LineReader(RowReader):
    def read(self, line: bytes) -> Read | None:
        return STRING, _text(line)


class JsonReader(RowReader):
    def read(self, line: bytes) -> Read | None:
        text = _text(line)
        if not text.strip():
            return None
        try:
            return None, json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(f"a line is not valid JSON: {error}") from None


class CsvReader(RowReader):
    def __init__(self, settings: Settings) -> None:
        self._dialect = _dialect(settings)
        self._null = settings["csv.null"]
        self._names: list[str] = list(settings["csv.fields"])
        self._schema = _texts(self._names)
        self._is_header_next = bool(settings["csv.header"])
        self.split = split_rows(self._dialect["quotechar"].encode())

    def state(self) -> dict[str, Any]:
        return {"fields": self._names} if not self._is_header_next else {}

    def resume(self, state: Mapping[str, Any]) -> None:
        names = state.get("fields")
        if isinstance(names, list):
            self._set_names([str(name) for name in names])

    def _set_names(self, names: list[str]) -> None:
        self._names, self._schema, self._is_header_next = names, _texts(names), False

    def read(self, line: bytes) -> Read | None:
        text = _text(line)
        if not text.strip():
            return None
        try:
            (cells,) = csv.reader([text], strict=True, **self._dialect)
        except (csv.Error, ValueError) as error:
            raise DataError(f"a row is not valid CSV: {error}") from None
        if self._is_header_next:
            self._set_names(self._names or cells)
            return None
        if len(cells) != len(self._names):
            raise DataError(
                f"a row has {len(cells)} cells, but there are {len(self._names)} fields"
            )
        values = (None if cell == self._null else cell for cell in cells)
        return self._schema, dict(zip(self._names, values, strict=True))


def _texts(names: Sequence[str]) -> Schema:
    return struct_schema(*((name, OPTIONAL_STRING) for name in names))


def _dialect(settings: Settings) -> dict[str, Any]:
    return {
        "delimiter": _character(settings["csv.delimiter"]),
        "quotechar": _character(settings["csv.quote"]),
    }


def split_rows(quote: bytes) -> Split:
    """Return a function that splits rows at newlines outside quotes."""

    def split(data: bytes, limit: int) -> tuple[list[bytes], bytes]:
        if quote not in data:
            return split_lines(data, limit)
        rows: list[bytes] = []
        start = at = 0
        is_quoted = False
        while len(rows) < limit:
            end = data.find(b"\n", at)
            if end < 0:
                break
            if data.count(quote, at, end) % 2:
                is_quoted = not is_quoted
            at = end + 1
            if not is_quoted:
                rows.append(data[start:end])
                start = at
        return rows, data[start:]

    return split


# ------------------------------------------------------------------------------------- writing


class RowWriter(ABC):
    """Writer of the rows of one file."""

    @abstractmethod
    def row(self, record: ConnectRecord) -> bytes:
        """Return the encoded row with its newline; raise DataError if it cannot be written."""

    def header(self, record: ConnectRecord) -> bytes:
        """Return the header of an empty file, given its first record."""
        return b""

    def resume(self, head: bytes) -> None:
        """Continue a file that has content, given its first line."""
        return


def writer_of(settings: Settings) -> RowWriter:
    if settings["format"] == CSV:
        return CsvWriter(settings)
    return JsonWriter() if settings["format"] == JSON else LineWriter()


class LineWriter(RowWriter):
    def row(self, record: ConnectRecord) -> bytes:
        value = record.value
        text = "null" if value is None else as_text(record.value_schema, value)
        return f"{text}\n".encode("utf-8", "surrogateescape")


class JsonWriter(RowWriter):
    def __init__(self) -> None:
        self._json = JsonConverter({"schemas.enable": False, "decimal.format": "NUMERIC"})

    def row(self, record: ConnectRecord) -> bytes:
        written = self._json.from_connect(record.topic, record.value_schema, record.value)
        return (b"null" if written is None else written) + b"\n"


class CsvWriter(RowWriter):
    """CSV writer with the columns of the file's header, or of the first record in a new file."""

    def __init__(self, settings: Settings) -> None:
        self._dialect = _dialect(settings)
        self._null = settings["csv.null"] or ""
        self._names = list(settings["csv.fields"])
        self._has_header = bool(settings["csv.header"])

    def header(self, record: ConnectRecord) -> bytes:
        if not self._names:
            self._names = [str(name) for name in self._fields(record)]
        return self._line(self._names) if self._has_header else b""

    def resume(self, head: bytes) -> None:
        if self._has_header and head.strip():
            (self._names,) = csv.reader([head.decode("utf-8", "replace")], **self._dialect)

    def row(self, record: ConnectRecord) -> bytes:
        value = self._fields(record)
        unknown = [name for name in value if name not in self._names]
        if unknown:
            raise DataError(f"the file has no column {unknown[0]}; it has {', '.join(self._names)}")
        schema = record.value_schema
        cells = []
        for name in self._names:
            known = schema.field(name) if schema is not None else None
            cell = value.get(name)
            if cell is None:
                cells.append(self._null)
            else:
                cells.append(as_text(known.schema if known is not None else None, cell))
        return self._line(cells)

    def _fields(self, record: ConnectRecord) -> Mapping[str, Any]:
        if not isinstance(record.value, Mapping):
            raise DataError(
                f"a value must be a struct to be written as CSV, not {type(record.value).__name__}"
            )
        return record.value

    def _line(self, cells: Sequence[str]) -> bytes:
        out = io.StringIO()
        csv.writer(out, lineterminator="\n", **self._dialect).writerow(cells)
        return out.getvalue().encode("utf-8", "surrogateescape")
