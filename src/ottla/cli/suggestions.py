"""Suggestions for mistyped options, commands and values: "Did you mean --bootstrap-server?"."""

from __future__ import annotations

from collections.abc import Iterable

MAX_SUGGESTIONS = 3
MIN_PREFIX = 3
"""Minimum length of a word that is completed to a longer name."""


def suggestion(word: str, names: Iterable[str]) -> str:
    """Return " Did you mean …?" with the nearest names, or '' if none is near.

    >>> suggestion("--bootstrap-servr", ["--bootstrap-server", "--topic"])
    ' Did you mean --bootstrap-server?'
    """
    found = nearest(word, names)
    return f" Did you mean {' or '.join(found)}?" if found else ""


def nearest(word: str, names: Iterable[str]) -> list[str]:
    """Return the names with the smallest edit distance to `word`, sorted.

    A name is near if at most about a third of the word differs. If none is near, the names that
    begin with the word are returned. Case and leading dashes are ignored.
    """
    wanted = _normalized(word)
    distances = {name: edit_distance(wanted, _normalized(name)) for name in names}
    smallest = min(distances.values(), default=0)
    if distances and smallest <= max(1, (len(wanted) + 1) // 3) and smallest < len(wanted):
        found = [name for name, distance in distances.items() if distance == smallest]
    elif len(wanted) >= MIN_PREFIX:
        found = [name for name in distances if _normalized(name).startswith(wanted)]
    else:
        found = []
    return sorted(found)[:MAX_SUGGESTIONS]


def edit_distance(first: str, second: str) -> int:
    """Return the edit distance of two texts (optimal string alignment).

    Insertions, deletions, replacements and swaps of neighbouring characters count as one each."""
    before: list[int] = []
    row = list(range(len(second) + 1))
    for i, left in enumerate(first, start=1):
        above, row = row, [i]
        for j, right in enumerate(second, start=1):
            cost = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (left != right))
            if i > 1 and j > 1 and left == second[j - 2] and first[i - 2] == right:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before = above
    return row[-1]


def _normalized(name: str) -> str:
    return name.lstrip("-").lower()
