"""Options in the JAAS configuration of Java's clients."""

from __future__ import annotations

import re

_OPTION = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")


def jaas_options(text: str) -> dict[str, str]:
    """Return the options of a login module.

    Args:
        text: Value of `sasl.jaas.config`: `Module required name="value" …;`.
    """
    return {
        match[1]: re.sub(r"\\(.)", r"\1", match[2] or match[3] or match[4] or "")
        for match in _OPTION.finditer(text)
    }
