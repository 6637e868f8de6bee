"""Implementation of `kafka-dump-log`.

Each line contains the fields of an entry in the format of Apache Kafka's tool, so that scripts work
with both. With `--json`, each line is the same entry as a JSON object."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from ottla.base.errors import UserError
from ottla.storage import dump, dump_index
from ottla.storage.dump import Entry, LogDump, Parser

RECORD_INDENT = "|"
OPTIONAL = frozenset({"deleteHorizonMs", "currentTxnFirstOffset"})
"""Fields that Kafka prints in the form of Java's OptionalLong."""
_DECODER_PACKAGES = ("org.apache.kafka.tools.api", "kafka.serializer")
_DECODERS: Mapping[str, Callable[[bytes], Any]] = {
    "StringDecoder": lambda data: data.decode("utf-8", "replace"),
    "IntegerDecoder": lambda data: int.from_bytes(data, "big", signed=True),
    "LongDecoder": lambda data: int.from_bytes(data, "big", signed=True),
    "DefaultDecoder": bytes.hex,
}
_PARSERS: Mapping[str, Parser] = {
    "offsets": dump.group_parser,
    "transaction-log": dump.transaction_parser,
    "cluster-metadata": dump.metadata_parser,
    "share-group-state": dump.share_state_parser,
}


@dataclass(frozen=True)
class Options:
    deep: bool
    parser: Parser | None
    verify_only: bool
    sanity_only: bool
    max_bytes: int | None


def find_parser(
    decoders: list[str],
    key_class: str | None,
    value_class: str | None,
    *,
    print_data_log: bool,
) -> Parser | None:
    """Return the parser for keys and values, or None if they are not to be printed.

    Raises:
        UserError: More than one decoder is requested, or an unknown one.
    """
    if len(decoders) > 1:
        names = " and ".join(f"--{name}-decoder" for name in decoders)
        raise UserError(f"{names} cannot be combined. Choose one of them.")
    if "remote-log-metadata" in decoders:
        raise UserError(
            "--remote-log-metadata-decoder is not supported: Ottla has no tiered storage."
        )
    key_decoder = _decoder(key_class, "--key-decoder-class")
    value_decoder = _decoder(value_class, "--value-decoder-class")
    if decoders:
        return _PARSERS[decoders[0]]
    if print_data_log or key_class or value_class:
        return dump.decoding_parser(key_decoder, value_decoder)
    return None


def _decoder(name: str | None, option: str) -> Callable[[bytes], Any]:
    package, _, short = (name or "StringDecoder").rpartition(".")
    if short not in _DECODERS or (package and package not in _DECODER_PACKAGES):
        raise UserError(
            f"Unknown decoder {name} for {option}: Ottla cannot load Java classes. Use one of "
            f"{', '.join(sorted(_DECODERS))}."
        )
    return _DECODERS[short]


def dump_files(files: list[str], options: Options, printer: Printer) -> int:
    """Print all files and return the exit code. An error in one file does not stop the others."""
    code = 0
    complaints: list[tuple[str, list[str]]] = []
    for path in files:
        printer.begin(path)
        try:
            complaints += _dump_file(path, options, printer)
        except UserError as error:
            printer.problem(str(error))
            code = error.exit_code
    for title, lines in complaints:
        printer.problem(title, lines)
    printer.flush()
    return code


def _dump_file(path: str, options: Options, printer: Printer) -> list[tuple[str, list[str]]]:
    kind = os.path.splitext(path)[1]
    if kind in (".log", ".checkpoint"):
        return _dump_log(path, options, printer)
    if kind in (".index", ".timeindex"):
        return _dump_index(path, kind, options, printer)
    if kind in (".txnindex", ".snapshot"):
        read = dump_index.dump_txn_index if kind == ".txnindex" else dump_index.dump_snapshot
        for entry in read(path):
            printer.entry(entry)
        return []
    printer.problem(f"Ignoring unknown file {path}")
    return []


def _dump_log(path: str, options: Options, printer: Printer) -> list[tuple[str, list[str]]]:
    log = LogDump(path, max_bytes=options.max_bytes)
    printer.note(log.title())
    for batch in log.batches(options.parser, deep=options.deep):
        printer.entry(batch.header)
        for record in batch.records:
            printer.record(record, is_control=batch.header["isControl"])
        for problem in batch.problems:
            printer.problem(problem)
    if log.trailing_bytes:
        name = os.path.basename(path)
        printer.note(f"Found {log.trailing_bytes} invalid bytes at the end of {name}")
    if not log.gaps:
        return []
    gaps = [f"{before} is followed by {after}" for before, after in log.gaps]
    return [(f"Non-consecutive offsets in {os.path.abspath(path)}", gaps)]


def _dump_index(
    path: str, kind: str, options: Options, printer: Printer
) -> list[tuple[str, list[str]]]:
    is_time = kind == ".timeindex"
    if options.sanity_only:
        check = dump_index.check_time_index if is_time else dump_index.check_offset_index
        is_empty = not check(path) and not is_time
        printer.note(f"{path} is empty." if is_empty else f"{path} passed sanity check.")
        return []
    found = dump_index.dump_time_index(path) if is_time else dump_index.dump_offset_index(path)
    if not found.entries and not is_time:
        printer.note(f"{path} is empty.")
    if not options.verify_only:
        for entry in found.entries:
            printer.entry(entry)
    return found.mismatches


class Printer:
    """Writer for entries and notes on standard output, and for problems on standard error."""

    def __init__(self, *, as_json: bool, skip_metadata: bool) -> None:
        self._as_json = as_json
        self._skip_metadata = skip_metadata
        self._out = sys.stdout.buffer
        self._file = ""

    def begin(self, path: str) -> None:
        self._file = path
        if not self._as_json:
            self._line(f"Dumping {path}")

    def note(self, text: str) -> None:
        self._line(self._json({"note": text}) if self._as_json else text)

    def entry(self, entry: Entry) -> None:
        self._line(self._json(entry) if self._as_json else _text(entry))

    def record(self, entry: Entry, *, is_control: bool) -> None:
        if self._skip_metadata:
            if is_control:
                return
            entry = {name: entry[name] for name in ("key", "payload") if name in entry}
        if self._as_json:
            self._line(self._json({"record": entry}))
        else:
            self._line(f"{RECORD_INDENT} {_text(entry)}".rstrip(" "))

    def problem(self, title: str, lines: list[str] | None = None) -> None:
        """Print a problem to standard error, after all earlier output."""
        self.flush()
        click.echo(title, err=True)
        for line in lines or ():
            click.echo(f"  {line}", err=True)

    def flush(self) -> None:
        self._out.flush()

    def _json(self, entry: Entry) -> str:
        return json.dumps({"file": self._file, **entry}, ensure_ascii=False)

    def _line(self, text: str) -> None:
        self._out.write(text.encode("utf-8", "replace") + b"\n")


def _text(entry: Entry) -> str:
    return " ".join(
        f"{name}{'' if _is_title(name, value) else ':'} {_value(name, value)}"
        for name, value in entry.items()
    )


def _is_title(name: str, value: object) -> bool:
    """Return whether a field is a KRaft record, whose type Kafka prints without a colon."""
    return isinstance(value, dict) and name not in ("key", "payload")


def _value(name: str, value: Any) -> str:
    if name in OPTIONAL:
        return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    return str(value)
