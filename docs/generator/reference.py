"""The reference of the Python packages: every public name, with its signature and its docstring.

`PACKAGES` assigns the names of a package to pages; tests/docs/test_reference.py fails when a name
of a package's `__all__` is on none."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from generator import connect_rest
from generator.describe import described
from generator.describe import entries as entries_of
from generator.docstrings import summary


class Chapter(NamedTuple):
    title: str
    about: str
    names: Sequence[str]
    module: str = ""
    """Module that the names are imported from, if it is not the page's package."""


class Page(NamedTuple):
    package: str
    title: str
    about: str
    chapters: Sequence[Chapter]


HIDDEN: dict[str, tuple[str, ...]] = {
    "Aggregate": ("needs_number", "type_of", "accepts"),
    "App": ("sinks",),
    "Definition": ("knows", "problems", "settings"),
    "ListStore": ("written_ms", "unexpired"),
    "MapStore": ("written_ms", "unexpired"),
    "ValueStore": ("written_ms", "unexpired"),
    "BrokerProcess": ("command",),
    "Running": ("start", "stop_idle", "supervise"),
}
"""Members without a leading underscore that only Ottla itself calls."""

CLIENT = Page(
    "ottla",
    "Client API",
    """Producers, consumers and the admin client, blocking and for asyncio. `import ottla` loads
nothing until a name is used. Every client is a context manager that closes it. Clients take Kafka's
properties as keywords, with underscores for dots: [Configuration](configs.md) lists them. The
guides [Producers](../producer.md) and [Consumers](../consumer.md) show how to use them.""",
    (
        Chapter("Clients", "Blocking clients, for programs without an event loop.",
                ("Producer", "Consumer", "Admin")),
        Chapter("Clients for asyncio", "The same clients with coroutines.",
                ("AsyncProducer", "AsyncConsumer", "AsyncAdmin")),
        Chapter("Tables", "Topics as Arrow tables, without a Python object per record; see "
                "[Use Arrow](../howto/arrow.md).", ("read_table", "read_batches")),
        Chapter("Records and offsets", "Values that clients take and return.",
                ("TopicPartition", "Record", "Records", "RecordFuture", "RecordMetadata",
                 "TableFuture", "TableMetadata", "OffsetAndMetadata", "OffsetAndTimestamp",
                 "GroupMetadata", "NewTopic")),
        Chapter("Subscriptions and partitioners", "Objects that change which partitions a "
                "consumer reads and a producer writes.",
                ("SubscriptionPattern", "RebalanceListener", "PriorityPartitioner",
                 "RoundRobinPartitioner")),
        Chapter("Authentication", "The type of the argument `oauth_cb`; see "
                "[Connect securely](../howto/secure-clients.md).", ("TokenProvider",)),
        Chapter("Administration", "Values that `Admin` takes and returns; see "
                "[Manage a cluster](../admin.md).",
                ("AbortTransaction", "AclBinding", "AclFilter", "AclOperation", "AclPermission",
                 "AclResourceType", "AlterOp", "ApiVersions", "BrokerNode", "ClusterDescription",
                 "ConfigChange", "ConfigEntry", "ConfigResource", "ConfigSource",
                 "ConfigSynonym", "CreatedTopic", "DelegationToken", "ElectionType", "Features",
                 "FinalizedFeature", "GroupDescription", "GroupLag", "GroupListing",
                 "IsolationLevel", "ListedOffset", "Listing", "LogDirDescription",
                 "MemberDescription", "OffsetSpec", "PartitionDescription", "PartitionLag",
                 "PatternType", "Principal", "ProducerState", "QuotaEntity", "Reassignment",
                 "ReplicaInfo", "ResourceType", "Results", "ScramCredentialInfo",
                 "ScramMechanism", "TopicDescription", "TopicListing", "TransactionDescription",
                 "TransactionListing", "UserScramCredentialDeletion",
                 "UserScramCredentialUpsertion")),
    ),
)  # fmt: skip
STREAMS = Page(
    "ottla.streams",
    "Streams API",
    """Stream processing with the operators of Kafka Streams, run by Spark: `import ottla.streams as
st`. Building and explaining a topology needs no Spark, running one needs the `spark` extra. The
guide [Streams](../streams.md) introduces the operators and lists what differs from Kafka Streams;
[Examples](../examples.md) has whole applications.

Functions over records take `(value)`, `(key, value)` or `(key, value, timestamp)`. Those that only
use operators and the functions of this page become Spark columns; all others run in Python.""",
    (
        Chapter("Application", "A name, a cluster, and the topology that is built on its topics.",
                ("App", "from_df", "TopologyError")),
        Chapter("Streams and tables", "A stream is a sequence of events, a table is the latest "
                "value of each key. Every operator returns a new one and checks the topology.",
                ("Stream", "Table", "GlobalTable")),
        Chapter("Grouping and aggregating", "Records with the same key become one value.",
                ("Grouped", "Aggregate", "count", "sum", "min", "max", "mean", "collect_list",
                 "collect_set")),
        Chapter("Grouped tables", "The result of `Table.group_by`.", ("GroupedTable",),
                "ottla.streams.dsl"),
        Chapter("Windows", "Windows are in event time. `grace` is how late a record may be: a "
                "window accepts records until stream time has passed its end by that much. Stream "
                "time is the greatest timestamp seen, and advances between micro-batches.",
                ("Window", "tumbling", "hopping", "sliding", "session")),
        Chapter("Serdes", "How keys and values are encoded in a topic.",
                ("Serde", "Json", "String", "Bytes", "Long", "DeadLetter")),
        Chapter("Functions over records", "They work on columns and on plain values alike.",
                ("is_null", "coalesce")),
        Chapter("Processors", "Python code of your own, with stores and timers that belong to the "
                "key of the record. Stores are declared in the class and used through `self`.",
                ("Processor", "Record", "Timer", "ValueStore", "ListStore", "MapStore")),
        Chapter("Stores of a key", "What a declared store is in the methods of a processor.",
                ("ValueOfKey", "ListOfKey", "MapOfKey"), "ottla.streams.state.stores"),
        Chapter("Running", "`App.start` returns the running application.", ("Running",),
                "ottla.streams.running"),
        Chapter("Querying a table", "`App.store` returns a table that the application writes, for "
                "look-ups from any process.", ("Store", "Entry"), "ottla.streams.store"),
        Chapter("Testing a topology", "A topology runs on given records without a broker: "
                "`from ottla.streams.testing import TopologyDriver`.",
                ("TopologyDriver", "TestRecord"), "ottla.streams.testing"),
    ),
)  # fmt: skip
SPARK = Page(
    "ottla.spark",
    "Spark API",
    """Topics as tables and streams of Spark, by `spark.read.format("ottla")`, without a jar.
It needs the `spark` extra. The guide [Spark](../spark.md) describes the format's options,
exactly-once sinks and consumer groups of queries.""",
    (
        Chapter("Sessions", "", ("session", "register")),
        Chapter("Tables", "", ("table",)),
    ),
)
TESTING = Page(
    "ottla.testing",
    "Testing API",
    """Real brokers for the tests of your programs, and kits that run a connector without a cluster.
The guide [Brokers in your tests](../testing.md) shows them at work. The rest of
Ottla loads nothing of this package.""",
    (
        Chapter("Brokers", "Each listens on a free port of 127.0.0.1 and removes its data at the "
                "end.", ("BrokerThread", "BrokerProcess", "EmbeddedBroker", "BrokerFailed")),
        Chapter("Fixtures", "Installed with Ottla as a pytest plugin; there is nothing to "
                "register. `@pytest.mark.ottla(overrides={…})` on a test, a class or a module sets "
                "broker properties for `ottla_broker`.",
                ("ottla_broker", "ottla_session_broker", "ottla_broker_factory"),
                "ottla.testing.plugin"),
        Chapter("Connectors", "[Write your own connector](../connectors-own.md) has a whole "
                "example.", ("SourceKit", "SinkKit", "check_source", "check_sink")),
    ),
)  # fmt: skip
CONNECT = Page(
    "ottla.connect",
    "Connect API",
    """The classes to derive from when you write a connector, a converter or a transform:
`from ottla.connect import SourceConnector`. [Write your own connector](../connectors-own.md) is the
introduction, [Connect](../connect.md) describes workers, and [Connect REST API](connect-rest.md)
their HTTP interface.""",
    (
        Chapter("Connectors and tasks", """A connector is a configured instance; its tasks move the
data, each in a thread of its own.

A **source task** is started with the offsets that were committed last. Its worker writes the
records of each `poll` and the offsets after them in one transaction, so a source that
can return to any offset is exactly-once.

A **sink task** is handed numbered batches: `begin(batch)`, `put(records)` as often as needed, and
`end()`. A batch that was interrupted is delivered again with the same number and the same records,
and no older one is. A task that undoes in `begin` what an interrupted batch left behind is
exactly-once.""",
                ("Connector", "SourceConnector", "SinkConnector", "SourceTask", "SinkTask",
                 "Polled", "Offsets", "Guarantee", "RetriableError", "UserError")),
        Chapter("Records", "Schemas and values as in Kafka Connect. A struct is a dict; a value "
                "whose schema is None is anything that JSON can express.",
                ("ConnectRecord", "FailedRecord", "Header", "Schema", "Field", "Type",
                 "struct_schema", "decimal_schema", "DataError")),
        Chapter("Properties", "The definition of a plugin's properties is checked before anything "
                "is started, and shown by `PUT /connector-plugins/CLASS/config/validate`.",
                ("Definition", "key", "Settings", "ConfigType", "Importance", "Validator",
                 "AtLeast", "Between", "NonEmpty", "OneOf", "EachOneOf")),
        Chapter("Converters and transforms", "`value.converter` and `transforms.NAME.type` may "
                "name a Python class as `package.module:Class`.",
                ("Converter", "Transform", "Predicate")),
        Chapter("Records in columns", "A batch of records of one topic as columns of Arrow, for "
                "tasks that move many.",
                ("Columns", "ColumnBatch", "Column", "column_of", "NotInColumns")),
        Chapter("Spark", "Sources that Spark reads, and the Spark session of the worker.",
                ("FrameSource", "FRAME", "spark_session")),
    ),
)  # fmt: skip
PACKAGES = {
    "reference/client.md": CLIENT,
    "reference/streams.md": STREAMS,
    "reference/spark.md": SPARK,
    "reference/connect.md": CONNECT,
    "reference/testing.md": TESTING,
}


def page_of(page: Page) -> str:
    """Return the reference of a package as Markdown."""
    lines = [f"# {page.title}\n", page.about, ""]
    shown = _classes(page)
    for chapter in page.chapters:
        lines += [f"\n## {chapter.title}\n", chapter.about, ""]
        for name, thing, module in things(page, chapter):
            lines += described(name, thing, module, HIDDEN.get(name, ()), shown)
    if page is CLIENT:
        lines += [
            "\n## Errors\n",
            "Every error of a client is a `ClientError` or a `KafkaError`.\n",
        ]
        lines += ["| error | base | when it is raised |", "|---|---|---|", *_errors()]
    return "\n".join(lines) + "\n"


def things(page: Page, chapter: Chapter) -> Iterator[tuple[str, Any, str]]:
    """Yield the names of a chapter with their objects and the modules that define them."""
    package = importlib.import_module(chapter.module or page.package)
    for name in chapter.names:
        thing = getattr(package, name.rpartition(".")[2])
        # pytest wraps a fixture's function in an object.
        thing = getattr(thing, "_get_wrapped_function", lambda found=thing: found)()
        yield name, thing, _module_of(thing, name, package)


def _module_of(thing: Any, name: str, package: Any) -> str:
    if inspect.isclass(thing) or inspect.isroutine(thing):
        return str(thing.__module__)
    # A package that loads its names lazily knows the module of each. Other constants are defined in
    # the module of their class, or in the package itself.
    if name in getattr(package, "_MODULES", {}):
        return str(package._MODULES[name])
    return str(type(thing).__module__ if package.__name__ == "ottla.streams" else package.__name__)


def entries(page: Page) -> Iterator[tuple[str, str]]:
    """Yield every name, member and field of a page with its docstring, '' if it has none."""
    shown = _classes(page)
    for chapter in page.chapters:
        for name, thing, module in things(page, chapter):
            yield from entries_of(name, thing, module, HIDDEN.get(name, ()), shown)
    if page is CLIENT:
        for name, error in _client_errors():
            yield name, error.__doc__ or ""


def _classes(page: Page) -> list[type]:
    return [
        thing
        for chapter in page.chapters
        for _, thing, _ in things(page, chapter)
        if inspect.isclass(thing)
    ]


def _errors() -> Iterator[str]:
    for name, error in _client_errors():
        base = error.__bases__[0].__name__
        yield f"| `{name}` | `{base}` | {summary(error.__doc__ or '')} |"


def _client_errors() -> Iterator[tuple[str, type[Exception]]]:
    import ottla

    for name in sorted(ottla.__all__):
        thing = getattr(ottla, name)
        if inspect.isclass(thing) and issubclass(thing, Exception):
            yield name, thing


PAGES: dict[str, Callable[[], str]] = {
    **{path: (lambda page=page: page_of(page)) for path, page in PACKAGES.items()},
    "reference/connect-rest.md": connect_rest.page,
}
