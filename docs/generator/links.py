"""Check of every link of the built site: it must resolve from the file system, without a server.

A link must name a file, not a folder for which a server would return `index.html`, and its anchor
must be an element of that file. Scripts, styles and images must be part of the site: a page that is
opened from `file://` may have no network."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = ("script", "img", "link", "iframe")
"""Elements whose address the browser loads without a click."""
NOT_LOADED = ("canonical", "prev", "next", "alternate")
ERROR_PAGE = "404.html"
"""Page that only a server shows, for any address, so its links begin at the server's root."""


class PageLinks(HTMLParser):
    """Parser that collects the links of a page, and the anchors that links may name."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[tuple[str, str]] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.update(given[name] for name in ("id", "name") if given.get(name))
        if given.get("rel") in NOT_LOADED:
            return
        self.links += [(tag, given[name]) for name in ("href", "src") if name in given]


def broken_links(site: Path) -> list[str]:
    """Return a sentence for each link of the site that does not resolve from the file system.

    Args:
        site: Folder of the built site.
    """
    pages = {
        path.resolve(): _parsed(path)
        for path in sorted(site.rglob("*.html"))
        if path.name != ERROR_PAGE
    }
    return [
        f"{path.relative_to(site.resolve())}: {problem}"
        for path, page in pages.items()
        for problem in _problems(path, page, pages)
    ]


def _parsed(path: Path) -> PageLinks:
    page = PageLinks()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def _problems(path: Path, page: PageLinks, pages: dict[Path, PageLinks]) -> Iterator[str]:
    for tag, link in page.links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            if tag in LOADED and parts.scheme != "data":
                yield f"{link} is loaded from another host"
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if not target.is_file():
            yield f"{link} names no file of the site"
        elif parts.fragment and target in pages:
            anchor = unquote(parts.fragment)
            # Anchors that begin with `__` are the theme's own, such as that of the search box.
            # time.
            if anchor not in pages[target].anchors and not anchor.startswith("__"):
                yield f"{link} names no element of the page"
