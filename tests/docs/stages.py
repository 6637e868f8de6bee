"""The state that a page expects: topics with records, a consumer group, and names it uses.

Pages that are not listed start with an empty broker."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

from tests.docs.blocks import blocks
from tests.docs.running import Page

import ottla
from ottla import Admin, Consumer, NewTopic, Producer, TopicPartition

Stage = Callable[[Page], None]
_numbers = count()
NOT_RUN = {
    "kafka-dump-log --files __cluster_metadata-0": "a file of Apache Kafka's",
    "kafka-transactions abort": "nothing hangs here",
    "ottla secure": "tests/integration/cli/test_secure.py runs these",
    "ottla broker --secure": "tests/integration/cli/test_secure.py runs these",
    "kafka-topics --create --topic greetings --command-config": "needs the files of the page",
    "kcat -F": "tests/integration/cli/test_secure.py runs it",
    "ottla cluster": "several brokers: see test_cluster_page",
    "kafka-reassign-partitions": "several brokers: see test_cluster_page",
    "kafka-leader-election": "several brokers: see test_cluster_page",
    "connect-standalone": "tests/connect/test_standalone.py runs these files",
    "connect-distributed": "tests/connect runs distributed workers",
    "cd examples/connect": "for connect-standalone",
    "printf 'foo": "for connect-standalone",
    "curl": "tests/connect and tests/unit/connect ask workers over REST",
    "kafka-server-start -daemon": "leaves a process behind; tests/unit/cli/test_daemon.py has it",
    "kafka-server-stop": "stops every broker of this user; tests/unit/cli/test_stop.py has it",
}
"""Prefixes of commands that are not run, with the reason."""
_WITH_ACLS = {"authorizer.class.name": "ottla", "super.users": "User:ANONYMOUS"}
OVERRIDES = {
    "docs/admin.md": _WITH_ACLS,
    "docs/tools.md": _WITH_ACLS,
    "docs/operations/acls.md": _WITH_ACLS,
    "docs/howto/tenants.md": _WITH_ACLS,
}
"""Properties of the brokers of pages that need some."""


def orders(page: Page) -> None:
    """Create topic orders with JSON values, and the group billing that reads it."""
    with Admin(page.broker.bootstrap) as admin:
        admin.create_topics(NewTopic("orders", 2), NewTopic("copies", 1), NewTopic("load", 1))
    with Producer(page.broker.bootstrap) as producer:
        for number in range(20):
            value = {"item": f"item {number}", "region": "north", "price": number}
            producer.send("orders", json.dumps(value).encode(), key=b"k", partition=number % 2)
    with Admin(page.broker.bootstrap) as admin:
        offsets = {TopicPartition("orders", each): 4 for each in range(2)}
        admin.alter_group_offsets("billing", offsets)


def producers(page: Page) -> None:
    import pyarrow as pa

    orders(page)
    with Admin(page.broker.bootstrap) as admin:
        admin.create_topics(NewTopic("jobs", 3))
    table = pa.table({"customer": ["anna"], "ordered_at": [datetime.datetime(2026, 1, 1)]})
    page.names.update(_public(), table=table)
    page.makers["producer"] = lambda: Producer(page.broker.bootstrap)
    page.makers["consumer"] = lambda: _reader(page)


def _reader(page: Page) -> Consumer:
    group = f"readers-{next(_numbers)}"
    consumer = Consumer(page.broker.bootstrap, group_id=group, auto_offset_reset="earliest")
    consumer.subscribe(["orders"])
    return consumer


def consumers(page: Page) -> None:
    orders(page)
    page.names.update(_public(), ottla=ottla, datetime=datetime.datetime)
    page.makers["consumer"] = lambda: _reader(page)


def tests(page: Page) -> None:
    """Define a substitute for the pytest mark, because only an installed Ottla has the plugin."""

    def mark(**options: Any) -> Callable[[Any], Any]:
        def marked(function: Any) -> Any:
            function.pytestmark = [SimpleNamespace(kwargs=options)]
            return function

        return marked

    page.names["pytest"] = SimpleNamespace(mark=SimpleNamespace(ottla=mark))


def files(page: Page) -> None:
    """Link partition folders into the page's folder, where its commands expect them."""
    orders(page)
    consumer = Consumer(page.broker.bootstrap, group_id="billing")
    consumer.commit({TopicPartition("orders", 0): 4})
    consumer.close()
    for path in page.broker.data_dir.glob("*-0"):
        (page.folder / path.name).symlink_to(path)


def tools(page: Page) -> None:
    """Delete topic orders, because the first command of the page creates it."""
    files(page)
    with Admin(page.broker.bootstrap) as admin:
        admin.delete_topics("orders")
    original = page.command

    def command(text: str, typed: str = "") -> None:
        original(text, typed)
        if text.startswith("kafka-topics --create"):
            with Producer(page.broker.bootstrap) as producer:
                for number in range(20):
                    producer.send("orders", b"%d" % number, partition=number % 2)
            with Admin(page.broker.bootstrap) as admin:
                offsets = {TopicPartition("orders", each): 4 for each in range(2)}
                admin.alter_group_offsets("billing", offsets)

    page.command = command  # type: ignore[method-assign]


def profiles(page: Page) -> None:
    """Write the profile that the page shows into its folder."""
    orders(page)
    (profile,) = (
        block
        for block in blocks("docs/configuration.md")
        if block.text.startswith("# client.properties")
    )
    (page.folder / "client.properties").write_text(profile.text)


STAGES: dict[str, Stage] = {
    "docs/producer.md": producers,
    "docs/consumer.md": consumers,
    "docs/configuration.md": profiles,
    "docs/testing.md": tests,
    "docs/tools.md": tools,
    "docs/operations/failures.md": files,
    "docs/operations/metrics.md": orders,
    "docs/operations/capacity.md": orders,
    "docs/howto/reset-offsets.md": orders,
    "docs/howto/exactly-once.md": orders,
    "docs/howto/tune.md": orders,
}


def _public() -> dict[str, Any]:
    return {name: getattr(ottla, name) for name in ottla.__all__ if name != "__version__"}
