"""Functions that MkDocs calls while it builds the site.

They add the pages that are generated from the code, show files from outside docs/ (see FROM_ROOT,
and examples/) as pages, and check the links of the site."""

from __future__ import annotations

import logging
import os.path
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "docs")]

from generator import cli, configs, decisions, examples, protocol, reference  # noqa: E402
from generator.links import broken_links  # noqa: E402

# Loggers below `mkdocs` count: a warning there fails a strict build.
logger = logging.getLogger("mkdocs.ottla")
FROM_ROOT = {"index.md": "README.md", "architecture.md": "ARCHITECTURE.md"}
FROM_ROOT |= {"changelog.md": "CHANGELOG.md", "operations/files.md": "deploy/README.md"}
FROM_ROOT |= {"contributing.md": "CONTRIBUTING.md", "security.md": "SECURITY.md"}
FROM_ROOT |= {"code-of-conduct.md": "CODE_OF_CONDUCT.md"}
PAGES = {
    **{page: (lambda name=name: (ROOT / name).read_text()) for page, name in FROM_ROOT.items()},
    "examples.md": examples.page,
    **reference.PAGES,
    "reference/configs.md": configs.page,
    "reference/cli.md": cli.page,
    "reference/protocol.md": protocol.page,
    "decisions/index.md": decisions.page,
}
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#:]+)((?:#[^)\s]*)?)\)")
_IMAGE = re.compile(r"(!\[[^\]]*\]\()docs/")


def on_files(files: Files, config: Any) -> Files:
    for path, make in PAGES.items():
        files.append(File.generated(config, path, content=make()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn links between files of the repository into links between pages of the site."""
    source = page.file.src_uri
    base = os.path.dirname(FROM_ROOT.get(source, f"docs/{source}")) or "."

    def replaced(found: re.Match[str]) -> str:
        text, target, anchor = found.groups()
        return _on_site(text, os.path.normpath(f"{base}/{target}"), anchor, source)

    return _LINK.sub(replaced, _IMAGE.sub(r"\1", markdown))


def _on_site(text: str, target: str, anchor: str, source: str) -> str:
    """Return a link to a file of the repository, as the site shows it.

    A file that is not on the site is named instead: the reader may have no repository to open."""
    pages = {name: page for page, name in FROM_ROOT.items()}
    if target.startswith("docs/"):
        page = target.removeprefix("docs/")
    elif target in pages:
        page = pages[target]
    elif target == "examples" or target.startswith("examples/"):
        page, anchor = "examples.md", examples.anchor(target)
    else:
        return text if target in text else f"{text} (`{target}`)"
    return f"[{text}]({os.path.relpath(page, os.path.dirname(source) or '.')}{anchor})"


def on_post_build(config: Any) -> None:
    for problem in broken_links(Path(config.site_dir)):
        logger.warning("%s", problem)
