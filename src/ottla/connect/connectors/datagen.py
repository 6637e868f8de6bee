"""Source of generated records, for tests and demonstrations (exactly once).

Record n of a task is a pure function of the seed, the task and n. The source offset of
`{"task": k}` is therefore `{"count": n}`, and a restarted task continues the same sequence.
`quickstart` selects a predefined set of fields; `fields` defines custom ones as `name:kind` pairs:

| kind | value |
|---|---|
| sequence, sequence(100) | n, counted from the given number |
| int(1..6), double(0..1) | random number in the range |
| boolean, uuid, string(12) | random value |
| choice(a\\|b\\|c) | one of the choices |
| time, time(1700000000000) | Timestamp that advances by a second per record |

`max.interval` is the longest pause between two records, in milliseconds; `rate` sets records per
second instead; `iterations` limits their number.
"""

from __future__ import annotations

import random
import re
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ottla.base.config.definition import ConfigType, Importance
from ottla.base.config.validator import AtLeast, OneOf
from ottla.connect import data
from ottla.connect.api import Offsets, Polled, SourceConnector, SourceTask
from ottla.connect.data import ConnectRecord, Schema, from_ms, struct_schema
from ottla.connect.definition import Definition, Settings, key

MAX_RECORDS = 5_000
"""Maximum number of records that one `poll` returns."""
EPOCH_MS = 1_700_000_000_000
QUICKSTARTS = {
    "users": ("userid", "userid:choice(User_1|User_2|User_3|User_4|User_5|User_6|User_7|User_8),"
              "registertime:int(1487715775521..1519273364600),"
              "regionid:choice(Region_1|Region_2|Region_3|Region_4|Region_5),"
              "gender:choice(MALE|FEMALE|OTHER)"),
    "pageviews": ("userid", "viewtime:sequence(1),"
                  "userid:choice(User_1|User_2|User_3|User_4|User_5),"
                  "pageid:choice(Page_10|Page_24|Page_38|Page_55|Page_71|Page_96)"),
    "orders": ("orderid", "orderid:sequence,ordertime:time,"
               "itemid:choice(Item_1|Item_2|Item_3|Item_4|Item_5|Item_6|Item_7),"
               "orderunits:double(0..10),city:choice(Prague|Vienna|Oslo|Rome|Cork)"),
}  # fmt: skip
_KIND = re.compile(r"(?P<kind>[a-z]+)(?:\((?P<of>.*)\))?")
_FIELDS = re.compile(r",(?![^(]*\))")
_RANGE = re.compile(r"(-?[\d.]+?)\.\.(-?[\d.]+)")
_STRING, _INT, _LONG = ConfigType.STRING, ConfigType.INT, ConfigType.LONG

Make = Callable[[random.Random, int], Any]


class GeneratedColumn(NamedTuple):
    name: str
    schema: Schema
    make: Make


class Datagen(SourceConnector):
    definition = Definition([
        key("topic", _STRING, "", "Topic to write to.", None, Importance.HIGH),
        key("kafka.topic", _STRING, "", "Alias of topic, as in Confluent's connector."),
        key("quickstart", _STRING, "", "Predefined set of fields.", OneOf(("", *QUICKSTARTS))),
        key("fields", _STRING, "", "Fields of the records, as name:kind, …"),
        key("key.field", _STRING, "",
            "Field to use as key. If empty, the one that quickstart defines."),
        key("max.interval", _LONG, 500, "Maximum time between records, in milliseconds.",
            AtLeast(0)),
        key("rate", ConfigType.DOUBLE, 0.0, "Records per second; 0 to use max.interval.",
            AtLeast(0)),
        key("iterations", _LONG, -1, "Number of records per task; -1 for no limit.", AtLeast(-1)),
        key("seed", _LONG, 1, "Seed of the random values."),
    ])  # fmt: skip

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        if not (settings["topic"] or settings["kafka.topic"]):
            raise ValueError("set topic to the topic to write to")
        if bool(settings["quickstart"]) == bool(settings["fields"]):
            raise ValueError("set exactly one of quickstart and fields")
        names = [each.name for each in columns_of(settings)]
        if settings["key.field"] and settings["key.field"] not in names:
            raise ValueError(f"key.field must be one of {', '.join(names)}")

    def task_settings(self, max_tasks: int) -> list[Settings]:
        return [{**self.settings, "task": task} for task in range(max_tasks)]

    def make_task(self, settings: Settings) -> SourceTask:
        return DatagenTask(settings)

    def check_offset(self, partition: Mapping[str, Any], offset: Mapping[str, Any]) -> None:
        count = offset.get("count")
        if partition.keys() != {"task"} or not isinstance(count, int) or count < 0:
            raise ValueError(
                'the source offset must have the form {"count": …}, and its partition {"task": …}'
            )


class DatagenTask(SourceTask):
    def __init__(self, settings: Settings) -> None:
        self._task = int(settings.get("task", 0))
        self._topic = settings["topic"] or settings["kafka.topic"]
        self._seed = settings["seed"]
        self._columns = columns_of(settings)
        self._schema = struct_schema(*((each.name, each.schema) for each in self._columns))
        self._key = settings["key.field"] or QUICKSTARTS.get(settings["quickstart"], ("",))[0]
        self._end = settings["iterations"]
        self._rate = settings["rate"]
        self._longest_s = settings["max.interval"] / 1000
        self._next = 0
        self._due = 0.0

    def start(self, offsets: Offsets) -> None:
        for partition, offset in offsets:
            if partition == {"task": self._task}:
                self._next = offset["count"]
        self._due = time.monotonic()

    def poll(self, wait_s: float) -> Polled:
        until = time.monotonic() + wait_s
        while self._due > time.monotonic():
            if self._due > until:
                time.sleep(max(until - time.monotonic(), 0))
                return Polled()
            time.sleep(max(self._due - time.monotonic(), 0))
        count = self._count()
        if count == 0:
            time.sleep(max(until - time.monotonic(), 0))
            return Polled()
        records = [self.record(self._next + index) for index in range(count)]
        self._next += count
        return Polled(records, [({"task": self._task}, {"count": self._next})])

    def _count(self) -> int:
        """Return the number of records that are due, and set the time of the next one."""
        left = self._end - self._next if self._end >= 0 else MAX_RECORDS
        now = time.monotonic()
        if self._rate:
            due = int((now - self._due) * self._rate) + 1
            count = min(due, left, MAX_RECORDS)
            self._due += count / self._rate
            return count
        if not self._longest_s:
            return min(left, MAX_RECORDS)
        pause = random.Random(f"{self._seed}-{self._task}-{self._next}-pause").random()
        self._due = now + pause * self._longest_s
        return min(left, 1)

    def record(self, number: int) -> ConnectRecord:
        chance = random.Random(f"{self._seed}-{self._task}-{number}")
        value = {each.name: each.make(chance, number) for each in self._columns}
        if not self._key:
            return ConnectRecord(self._topic, value, self._schema)
        field = self._schema.field(self._key)
        assert field is not None
        return ConnectRecord(self._topic, value, self._schema, value[self._key], field.schema)


def columns_of(settings: Settings) -> list[GeneratedColumn]:
    """Parse the fields; raise ValueError with a one-sentence message if they are invalid."""
    document = settings["fields"] or QUICKSTARTS[settings["quickstart"]][1]
    found = []
    for each in _FIELDS.split(document):
        name, colon, kind = each.strip().partition(":")
        match = _KIND.fullmatch(kind.strip())
        if not colon or not name or match is None:
            raise ValueError(f"fields must look like name:kind, not {each.strip()!r}")
        found.append(GeneratedColumn(name, *_column(match["kind"], match["of"])))
    if len({each.name for each in found}) < len(found):
        raise ValueError("two fields have the same name")
    return found


def _column(kind: str, of: str | None) -> tuple[Schema, Make]:
    if kind == "boolean":
        return data.BOOLEAN, lambda chance, number: chance.random() < 0.5
    if kind == "uuid":
        return data.STRING, lambda chance, number: str(uuid.UUID(int=chance.getrandbits(128)))
    if kind == "choice":
        choices = [each.strip() for each in (of or "").split("|")]
        return data.STRING, lambda chance, number: chance.choice(choices)
    if kind in ("int", "double"):
        return _range(kind, of)
    first = _number(kind, of)
    if kind == "sequence":
        return data.INT64, lambda chance, number: first + number
    if kind == "string":
        letters = "abcdefghijklmnopqrstuvwxyz"
        return data.STRING, lambda chance, number: "".join(chance.choices(letters, k=first or 8))
    if kind == "time":
        begin = first or EPOCH_MS
        return data.TIMESTAMP_SCHEMA, lambda chance, number: from_ms(begin + number * 1000)
    kinds = "sequence, int, double, boolean, uuid, string, choice, time"
    raise ValueError(f"unknown kind of field {kind!r}; use one of {kinds}")


def _range(kind: str, of: str | None) -> tuple[Schema, Make]:
    match = _RANGE.fullmatch((of or "0..100").strip())
    if match is None:
        raise ValueError(f"{kind} must have a range, such as {kind}(0..100)")
    try:
        low, high = float(match[1]), float(match[2])
    except ValueError:
        raise ValueError(f"{kind} must have a range, such as {kind}(0..100)") from None
    if low > high:
        raise ValueError(f"the range {of} ends before it begins")
    if kind == "int":
        first, last = int(low), int(high)
        return data.INT64, lambda chance, number: chance.randint(first, last)
    return data.FLOAT64, lambda chance, number: round(chance.uniform(low, high), 6)


def _number(kind: str, of: str | None) -> int:
    if of is None:
        return 0
    if not of.strip().isdecimal():
        raise ValueError(f"the argument of {kind}({of}) must be a number")
    return int(of)
