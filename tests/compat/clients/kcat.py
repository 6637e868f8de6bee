"""kcat as packaged by Debian: an older librdkafka, without admin calls.

Topics are created by requesting their metadata. Headers are printed as `name=value,…`, so the
values in these tests contain neither `=` nor `,`."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import IO

from tests.compat.clients.record import (
    TIMEOUT_S,
    Client,
    Headers,
    OnRecord,
    ProduceRefused,
    Received,
    Sent,
)

FORMAT = r"%o %T %K %S %h\n%k%s\n"
KEY_END = "\x1f"
MESSAGE_SIZE_TOO_LARGE = 10


class Kcat(Client):
    name = "kcat"
    sets_timestamps = False

    def _command(self, *arguments: str) -> list[str]:
        return ["kcat", "-b", self.bootstrap, *arguments]

    def _run(self, *arguments: str, given: bytes = b"") -> bytes:
        done = subprocess.run(
            self._command(*arguments),
            input=given,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            message = done.stderr.decode("utf-8", "replace")
            if "Message size too large" in message:
                raise ProduceRefused(MESSAGE_SIZE_TOO_LARGE)
            raise AssertionError(f"kcat failed: {message}")
        return done.stdout

    def can_send(self, record: Sent) -> bool:
        """Return False for an empty key, which kcat sends as null."""
        return record.key != b""

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """Create the topic by requesting its metadata, with the broker's default partition
        count."""
        self._run("-L", "-t", topic)

    def topics(self) -> set[str]:
        listed = self._run("-L").decode()
        return set(re.findall(r'topic "([^"]+)"', listed))

    def produce(
        self,
        topic: str,
        records: Sequence[Sent],
        *,
        partition: int = 0,
        compression: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> None:
        options = ["-P", "-t", topic, "-p", str(partition), "-z", compression]
        options += ["-X", f"acks={acks}", "-X", f"enable.idempotence={str(idempotent).lower()}"]
        options += ["-X", "message.max.bytes=50000000"]
        with tempfile.TemporaryDirectory() as directory:
            for (key, headers, is_null), group in groupby(
                records, lambda each: (each.key, each.headers, each.value is None)
            ):
                options_of_group = [*options, *_header_options(headers)]
                if is_null:
                    lines = [(key or b"") + KEY_END.encode() + b"\n" for _ in group]
                    self._run(*options_of_group, "-Z", "-K", KEY_END, given=b"".join(lines))
                else:
                    key_option = [] if key is None else ["-k", os.fsdecode(key)]
                    files = _write(directory, [each.value or b"" for each in group])
                    self._run(*options_of_group, *key_option, *files)

    def consume(
        self,
        topic: str,
        count: int,
        *,
        partition: int = 0,
        offset: int | str = 0,
        max_wait_ms: int = 500,
        on_record: OnRecord = lambda record: None,
    ) -> list[Received]:
        command = self._command(
            "-C", "-u", "-t", topic, "-p", str(partition), "-o", str(offset), "-c", str(count),
            "-f", FORMAT, "-X", f"fetch.wait.max.ms={max_wait_ms}",
        )  # fmt: skip
        found = []
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            timer = threading.Timer(TIMEOUT_S, process.kill)
            timer.start()
            try:
                for record in _parse(process.stdout):
                    found.append(record)
                    on_record(record)
            finally:
                timer.cancel()
        assert process.returncode == 0
        return found

    def offset_at(self, topic: str, timestamp: int, partition: int = 0) -> int | None:
        answer = self._run("-Q", "-t", f"{topic}:{partition}:{timestamp}").decode()
        found = int(answer.rpartition(" ")[2])
        return found if found >= 0 else None


def _header_options(headers: Headers) -> Iterator[str]:
    for name, value in headers:
        yield from ("-H", name if value is None else f"{name}={os.fsdecode(value)}")


def _write(directory: str, values: Sequence[bytes]) -> list[str]:
    paths = []
    for number, value in enumerate(values):
        paths.append(f"{directory}/{number}")
        with open(paths[-1], "wb") as file:
            file.write(value)
    return paths


def _parse(output: IO[bytes]) -> Iterator[Received]:
    while line := output.readline():
        offset, timestamp, key_size, value_size, headers = line[:-1].split(b" ", 4)
        key = _read(output, int(key_size))
        value = _read(output, int(value_size))
        assert output.read(1) == b"\n"
        yield Received(int(offset), int(timestamp), key, value, tuple(_headers(headers)))


def _read(output: IO[bytes], size: int) -> bytes | None:
    return None if size < 0 else output.read(size)


def _headers(text: bytes) -> Iterator[tuple[str, bytes | None]]:
    for pair in text.split(b",") if text else ():
        name, _, value = pair.partition(b"=")
        yield name.decode(), None if value == b"NULL" else value
