"""Tests of interactive queries over HTTP, without sockets."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import ottla.streams as st
from ottla.base.errors import UserError
from ottla.streams.http_resources import Resources
from ottla.streams.http_server import ResourceServer, parse_address
from ottla.streams.progress import query_status
from ottla.streams.store import Store, Stores, find_sink
from ottla.streams.store_file import StoreChange

MINUTE_MS = 60_000


class Still(Store):
    """State store that follows no topic."""

    def __init__(self, app: st.App, topic: str, path: Path) -> None:
        super().__init__(find_sink(app.application(), topic), path, None, None)  # type: ignore[arg-type]

    def refresh(self) -> None:
        pass


@pytest.fixture
def resources(tmp_path: Path) -> Resources:
    app = st.App("shop", state_dir=tmp_path)
    orders = app.stream("orders", value=st.Json("item string, n bigint"))
    orders.group_by(lambda o: o.item).count().to("counts")
    windows = orders.group_by(lambda o: o.n).windowed(st.tumbling("1 minute"))
    windows.count().to("windows")
    counts = Still(app, "counts", tmp_path / "counts.store")
    plain = [
        StoreChange(key, (0, 0), b'{"count":%d}' % n, 7) for n, key in enumerate((b"a", b"b/c"))
    ]
    counts._file.apply(plain, {})
    windowed = Still(app, "windows", tmp_path / "windows.store")
    windowed._file.apply(
        [
            StoreChange(b"5", (start, start + MINUTE_MS), b'{"count":%d}' % start, start)
            for start in (0, MINUTE_MS)
        ],
        {},
    )
    stores = Stores()
    stores._open.update(counts=counts, windows=windowed)
    status = query_status("counts", None, is_active=True, message="Waiting")
    return Resources(app.application(), stores, lambda: [status])


def get(resources: Resources, path: str, **query: str) -> tuple[int, Any]:
    answer = resources.get(path, {name: [value] for name, value in query.items()})
    is_json = answer.content_type == "application/json"
    return answer.status, json.loads(answer.body) if is_json else answer.body


def test_a_key_is_found_in_its_store(resources: Resources) -> None:
    assert get(resources, "/stores/counts/a") == (
        200,
        {"key": "a", "value": {"count": 0}, "timestamp": 7},
    )
    assert get(resources, "/stores/counts/zzz")[0] == 404
    assert get(resources, "/stores/nothing/a") == (404, {"error": "store 'nothing' does not exist"})


def test_a_range_has_bounds_and_a_limit(resources: Resources) -> None:
    keys = [each["key"] for each in get(resources, "/stores/counts")[1]]
    assert keys == ["a", "b/c"]
    assert [each["key"] for each in get(resources, "/stores/counts", **{"from": "b"})[1]] == ["b/c"]
    assert [each["key"] for each in get(resources, "/stores/counts", to="a")[1]] == ["a"]
    reverse = get(resources, "/stores/counts", reverse="true", limit="1")[1]
    assert [each["key"] for each in reverse] == ["b/c"]
    assert get(resources, "/stores/counts", limit="0")[0] == 400
    assert get(resources, "/stores/counts", limit="many") == (
        400,
        {"error": "limit must be a number, not 'many'"},
    )


def test_windows_are_found_by_their_start(resources: Resources) -> None:
    assert get(resources, "/stores/windows/5")[1]["window"] == {"start": 60_000, "end": 120_000}
    assert get(resources, "/stores/windows/5", at="0")[1]["value"] == {"count": 0}
    assert len(get(resources, "/stores/windows/5/windows")[1]) == 2
    assert len(get(resources, "/stores/windows/5/windows", since="1")[1]) == 1
    assert get(resources, "/stores/counts/a", at="0")[0] == 400
    assert get(resources, "/stores/windows/x")[0] == 400


def test_the_application_describes_itself(resources: Resources) -> None:
    assert get(resources, "/")[1]["stores"] == ["counts", "windows"]
    assert get(resources, "/status")[1][0]["message"] == "Waiting"
    assert get(resources, "/topology.svg")[1].startswith("<svg")
    assert "[state]" in get(resources, "/explain")[1]
    assert "ottla_streams_query_active" in get(resources, "/metrics")[1]
    assert get(resources, "/what/is/this/here/now")[0] == 404


def test_it_is_served_and_a_key_may_have_a_slash(resources: Resources) -> None:
    server = ResourceServer("127.0.0.1:0", resources)
    try:
        with urllib.request.urlopen(f"{server.url}/stores/counts/b%2Fc", timeout=30) as answer:
            assert json.load(answer)["value"] == {"count": 1}
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{server.url}/stores/counts/none", timeout=30)
        with pytest.raises(UserError, match="Cannot listen on 127"):
            ResourceServer(server.url.removeprefix("http://"), resources)
    finally:
        server.close()


def test_an_address_is_a_host_and_a_port_or_a_port() -> None:
    assert parse_address("7070") == ("127.0.0.1", 7070)
    assert parse_address("0.0.0.0:80") == ("0.0.0.0", 80)
    assert parse_address("[::1]:80") == ("::1", 80)
    with pytest.raises(UserError, match=r"is invalid\. Use host:port"):
        parse_address("localhost")
