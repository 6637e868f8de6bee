"""Checks that the documentation's site works from the file system: links, anchors and search.

MkDocs comes with the `docs` extra, so tests that build the site are skipped where it is not
installed; `make docs` checks the links of every build itself."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT, pages
from tests.docs.generated import generator

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
needs_mkdocs = pytest.mark.skipif(
    importlib.util.find_spec("material") is None, reason="needs the docs extra"
)
broken_links = generator("links").broken_links


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    ended = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")
    return folder


@needs_mkdocs
def test_every_link_and_anchor_resolves_from_the_file_system(site: Path) -> None:
    assert len(list(site.rglob("*.html"))) > 40
    assert broken_links(site) == []


@needs_mkdocs
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
@pytest.mark.parametrize("page", ["index.html", "howto/arrow.html"])
def test_search_finds_pages_from_the_file_system(site: Path, page: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [
            *(CHROMIUM or "", *QUIET, f"--user-data-dir={tmp_path / 'profile'}"),
            *("--virtual-time-budget=20000", "--dump-dom"),
            f"file://{site}/{page}?q=retention",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    results = re.findall(r'<a href="([^"]+)" class="md-search-result__link"', ended.stdout)
    assert any(f"file://{site}/reference/configs.html" in each for each in results), results


def test_a_broken_link_is_reported(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "index.html").write_text('<h2 id="there">There</h2>')
    (tmp_path / "index.html").write_text(
        '<a href="other/index.html#there">good</a> <a href="https://example.org/">outside</a>'
        '<a href="other/">folder</a> <a href="gone.html">gone</a>'
        '<a href="other/index.html#gone">anchor</a> <script src="https://example.org/a.js">'
    )
    assert broken_links(tmp_path) == [
        "index.html: other/ names no file of the site",
        "index.html: gone.html names no file of the site",
        "index.html: other/index.html#gone names no element of the page",
        "index.html: https://example.org/a.js is loaded from another host",
    ]


@pytest.mark.parametrize("page", [*pages(), "ARCHITECTURE.md"])
def test_link_texts_are_titles(page: str) -> None:
    text = CODE.sub("", (ROOT / page).read_text())
    poor = [
        f"[{words}]({target})"
        for words, target in LINK.findall(text)
        if words.lower() in ("here", "this", "link") or re.search(r"\.(md|py)$|/", words)
    ]
    assert poor == []


def test_every_page_begins_with_a_title() -> None:
    untitled = [page for page in pages() if not (ROOT / page).read_text().startswith("# ")]
    assert untitled == []
