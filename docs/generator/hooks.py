"""What MkDocs calls while it builds: adds the pages that are made from the code, with the README as
the start page, and mends links that leave docs/.

A link to a file of the repository (`../src/…`) helps who reads the page there. On the site it is
shown as the file's path instead."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "docs")]

from generator import cli, client, configs, decisions, protocol  # noqa: E402


def start_page() -> str:
    """The README, with its links as they are in docs/."""
    text = (ROOT / "README.md").read_text()
    text = text.replace("](docs/index.md)", "](reference/protocol.md)")
    return _TO_ROOT.sub(r"\1", re.sub(r"\]\(docs/", "](", text))


PAGES = {
    "index.md": start_page,
    "reference/client.md": client.page,
    "reference/configs.md": configs.page,
    "reference/cli.md": cli.page,
    "reference/protocol.md": protocol.page,
    "decisions/index.md": decisions.page,
}
_TO_ROOT = re.compile(r"\[([^\]]+)\]\((?:examples|[A-Z]+(?:\.md)?)\)")
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+(?:src|examples|tests|bench|compat)[^)]*)\)")


def on_files(files: Files, config: Any) -> Files:
    for path, make in PAGES.items():
        files.append(File.generated(config, path, content=make()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    return _OUTSIDE.sub(lambda found: f"`{found[2].replace('../', '')}`", markdown)
