"""Tests of the examples in docs/connectors-own.md, and of connectors from other packages."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla.connect
from ottla.base.errors import UserError
from ottla.connect import plugins
from ottla.connect.api import Polled, SinkConnector, SinkTask, SourceConnector, SourceTask
from ottla.connect.data import ConnectRecord
from ottla.testing.connectors import SinkKit, SourceKit, check_sink, check_source

PAGE = Path(__file__).parents[3] / "docs" / "connectors-own.md"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Import the page's Python code as a module of an installed package."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "own_page.py").write_text("\n".join(blocks))
    info = tmp_path / "own_page-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-page\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ottla.connectors]\nCounter = own_page:Counter\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    plugins._connectors.cache_clear()
    yield importlib.import_module("own_page")
    plugins._connectors.cache_clear()


def test_the_example_of_the_page_works(page: Any, tmp_path: Path) -> None:
    page.test_a_restart_neither_loses_nor_repeats()
    page.test_a_batch_that_comes_again_replaces_itself(tmp_path)
    kit = SinkKit(page.Appender, {"file": str(tmp_path / "other")}, tolerates=True)
    kit.put("a", None)
    assert [str(error) for _, error in kit.reported] == ["there is nothing to write"]


def test_the_page_imports_from_the_public_package_only() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    modules = {
        node.module
        for node in ast.walk(ast.parse("\n".join(blocks)))
        if isinstance(node, ast.ImportFrom) and node.module is not None
    }
    assert modules == {"ottla.connect", "ottla.testing.connectors"}


def test_the_page_lists_every_public_name() -> None:
    table = PAGE.read_text().partition("## Names")[2].partition("\n## ")[0]
    names = {
        name
        for row in re.findall(r"^\| [^|]+ \| (`.*) \|$", table, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    assert names == set(ottla.connect.__all__)


def test_type_checkers_see_the_public_names() -> None:
    tree = ast.parse(Path(ottla.connect.__file__).read_text())
    (checked,) = (node for node in tree.body if isinstance(node, ast.If))
    declared = {
        alias.name: node.module
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert declared == ottla.connect._MODULES
    assert set(ottla.connect.__all__) == set(declared)
    assert all(getattr(ottla.connect, name) is not None for name in declared)


def test_connectors_of_other_packages_have_short_names(page: Any) -> None:
    assert plugins.connector_class("Counter") is page.Counter
    offered = {each.name: each for each in plugins.connector_plugins()}
    assert offered["Counter"].guarantee == "exactly-once"
    assert SourceKit("Counter", {"topic": "t", "step": "2"}).take(2)[1].value == {"n": 2}
    with pytest.raises(UserError, match="Missing required configuration"):
        SourceKit("Counter")


class Forgetful(SourceConnector):
    """Source connector that ignores its source offsets on restart."""

    count = 0

    def make_task(self, settings: Any) -> SourceTask:
        return ForgetfulTask()


class ForgetfulTask(SourceTask):
    def start(self, offsets: Any) -> None: ...

    def poll(self, wait_s: float) -> Polled:
        Forgetful.count += 1
        return Polled([ConnectRecord("t", Forgetful.count)], [({}, {"n": Forgetful.count})])


class Doubling(SinkConnector):
    written: list[Any] = []  # noqa: RUF012

    def make_task(self, settings: Any) -> SinkTask:
        return DoublingTask()


class DoublingTask(SinkTask):
    def start(self, directory: Path) -> None: ...

    def begin(self, batch: int) -> None: ...

    def put(self, records: Any) -> None:
        Doubling.written += [each.value for each in records]

    def end(self) -> None: ...


def test_the_kit_finds_a_source_that_does_not_resume() -> None:
    with pytest.raises(AssertionError, match="a restart changes the records"):
        check_source(lambda offsets: SourceKit(Forgetful, offsets=offsets), 3)


def test_the_kit_finds_a_sink_that_repeats(tmp_path: Path) -> None:
    def made(directory: Path) -> SinkKit:
        Doubling.written = []
        return SinkKit(Doubling, directory=directory)

    with pytest.raises(AssertionError, match="interrupted after 2 steps"):
        check_sink(made, [[1, 2], [3]], lambda: list(Doubling.written))


def test_every_connector_states_its_guarantee() -> None:
    guarantees = {each.name: each.guarantee for each in plugins.connector_plugins()}
    assert guarantees["HttpSink"] == "at-least-once"
    for name in ("FileSource", "FileSink", "ParquetSink", "MirrorSource", "Datagen"):
        assert guarantees[name] == "exactly-once"
    page = (PAGE.parent / "connectors.md").read_text() + (PAGE.parent / "connect.md").read_text()
    assert [name for name in plugins.CONNECTORS if f"`{name}`" not in page] == []


def test_the_former_name_of_records_warns() -> None:
    with pytest.warns(DeprecationWarning, match="Use ConnectRecord"):
        former = ottla.connect.Record
    assert former is ottla.connect.ConnectRecord
