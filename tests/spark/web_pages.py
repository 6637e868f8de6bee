"""A reader of all pages of Spark's web interfaces."""

from __future__ import annotations

import html
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator

TIMEOUT_S = 60.0
MAX_PAGES = 400
_LINK = re.compile(r"""(?:href|src)=["']([^"'#]+)""")
_HOSTS = ("127.0.0.1", "localhost")
_SKIPPED = ("/static/", "kill", "heapHistogram", "/threadDump/", ".sort=")
"""Files of Spark itself, links that end things, pages that stop the JVM, and other orders."""


def pages(*starts: str) -> Iterator[tuple[str, str]]:
    """Yield the address and the text of these pages and of all on this machine that they link to.

    Args:
        starts: Addresses of the first pages.
    """
    waiting, seen = list(starts), set(starts)
    while waiting:
        address = waiting.pop(0)
        try:
            with urllib.request.urlopen(address, timeout=TIMEOUT_S) as response:
                text, here = response.read().decode("utf-8", "replace"), response.url
        except urllib.error.HTTPError as error:
            text, here = error.read().decode("utf-8", "replace"), address
        yield address, text
        for link in _LINK.findall(text):
            target = urllib.parse.urljoin(here, html.unescape(link).replace(" ", "%20"))
            parts = urllib.parse.urlsplit(target)
            is_wanted = parts.hostname in _HOSTS and not any(x in target for x in _SKIPPED)
            if is_wanted and target not in seen and len(seen) < MAX_PAGES:
                seen.add(target)
                waiting.append(target)
