"""Checks that requests and their responses have exact types on the side that sends them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.arch.test_handler_types import ROOT, findings
from tests.type_errors import check_type_errors

SOURCE = ROOT / "src" / "ottla"
ANY_API = {"broker/forwarding.py"}
"""Modules that pass on requests of any API."""

SNIPPET = """\
from ottla.broker.peers import Peers
from ottla.client.cluster import Cluster
from ottla.net.connection import Connection
from ottla.wire import rpc
from ottla.wire.messages.fetch import FetchRequestDict


async def as_client(cluster: Cluster) -> None:
    response = await cluster.call(rpc.list_groups(states_filter=["Stable"]), node=1)
    names: list[str] = [group.group_id for group in response.groups]
    response.group  # error: attr-defined
    response.groups[0].group_name  # error: attr-defined
    number: int = response.groups[0].group_id  # error: assignment
    await cluster.call(rpc.list_groups(state_filter=["Stable"]))  # error: call-arg
    await cluster.call(rpc.list_groups(), node="1")  # error: arg-type
    await cluster.call(rpc.list_groups(), nodes=1)  # error: call-arg
    await cluster.call({"states_filter": []})  # error: arg-type
    wanted = rpc.delete_records(timeout_ms="1")  # error: arg-type
    topic = await cluster.call_controller(rpc.create_topics(topics=[{"name": "t"}]))
    topic.topics[0].topic_name  # error: attr-defined
    rpc.create_topics(topics=[{"topic": "t"}])  # error: typeddict-unknown-key
    rpc.create_topics(topics=[{"name": "t", "num_partitions": "1"}])  # error: typeddict-item


async def as_broker(peers: Peers, connection: Connection) -> None:
    marked = await peers.request(2, rpc.write_txn_markers(markers=[]), 1.0)
    marked.markers[0].topics[0].partitions[0].code  # error: attr-defined
    body: FetchRequestDict = {"max_wait_ms": 500}
    body["max_wait"] = 500  # error: typeddict-unknown-key
    fetched = await connection.request(rpc.fetch(**body), 1.0)
    fetched.responses[0].partitions[0].watermark  # error: attr-defined
    sent = await connection.send(rpc.heartbeat(generation=1), 4, 1.0)  # error: call-arg
    sent.errors  # error: attr-defined
    rpc.heartbeat(**body)  # error: misc
"""


def test_a_type_checker_reports_wrong_fields_of_requests_and_responses(tmp_path: Path) -> None:
    check_type_errors(SNIPPET, tmp_path)


def sends_requests(source: str) -> bool:
    """Return whether a module imports the functions that create requests, or their class."""
    return any(
        isinstance(node, ast.ImportFrom)
        and (
            node.module == "ottla.wire.request"
            or (node.module == "ottla.wire" and "rpc" in {each.name for each in node.names})
        )
        for node in ast.walk(ast.parse(source))
    )


SENDERS = [
    name
    for file in sorted(SOURCE.rglob("*.py"))
    if sends_requests(file.read_text(encoding="utf-8"))
    and (name := str(file.relative_to(SOURCE))) not in ANY_API
]


def test_the_modules_that_send_requests_are_found() -> None:
    assert len(SENDERS) > 20
    assert {"net/connection.py", "client/cluster.py", "broker/replica_fetcher.py"} <= {*SENDERS}


@pytest.mark.parametrize("name", SENDERS)
def test_no_function_that_sends_requests_has_any_in_its_signature(name: str) -> None:
    found = [*findings((SOURCE / name).read_text(encoding="utf-8"), name)]
    assert not found, "\n".join(found)
