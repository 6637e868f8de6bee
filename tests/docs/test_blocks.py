"""Runs of every code block of the README and of docs/.

Blocks marked `text` are for a person and are not run. tests/streams runs the blocks that need
Spark, in its own session."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.blocks import ELSEWHERE, RUN, Block, blocks, commands, pages
from tests.docs.running import Page
from tests.docs.stages import NOT_RUN, OVERRIDES, STAGES

from ottla.base.config.broker import BrokerConfig
from ottla.base.config.properties import load_properties
from ottla.testing.broker_thread import BrokerThread

LANGUAGES = (*RUN, "properties", "text", "json", "sql", "toml")


def of(page: str) -> list[Block]:
    if page in ELSEWHERE:
        return []
    return [block for block in blocks(page) if block.language in RUN and not block.needs_spark]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [page for page in pages() if of(page)])
def test_the_code_of_a_page_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BrokerThread(overrides=OVERRIDES.get(name, {})) as broker:
        page = Page(broker, tmp_path, monkeypatch)
        STAGES.get(name, lambda page: None)(page)
        for block in of(name):
            if block.language == "python":
                page.python(block)
                continue
            for command, typed in commands(block.text):
                if not command.startswith(tuple(NOT_RUN)):
                    page.command(command, typed)
        page.close()


def test_every_block_has_a_known_language() -> None:
    unknown = [
        str(block) for page in pages() for block in blocks(page) if block.language not in LANGUAGES
    ]
    assert unknown == []


def test_what_is_not_run_is_there() -> None:
    reported = [
        command
        for page in pages()
        for block in blocks(page)
        if block.language in RUN and block.language != "python"
        for command, _ in commands(block.text)
    ]
    unused = [each for each in NOT_RUN if not any(text.startswith(each) for text in reported)]
    assert unused == []


@pytest.mark.parametrize(
    "block",
    [block for page in pages() for block in blocks(page) if block.language == "properties"],
    ids=str,
)
def test_properties_can_be_read(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "given.properties"
    file.write_text(block.text)
    given = load_properties(str(file))
    assert given
    if "node.id" in given:
        BrokerConfig.from_properties(given)
