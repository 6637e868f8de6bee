"""Recognition of properties that hold secrets, by their names.

Tables of properties mark secrets by the type PASSWORD. This module serves where there is no table:
files for several programs, and properties of plugins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = "[hidden]"
"""Text shown instead of a secret, as in Kafka."""

_SECRET = re.compile(
    r"password|passwd|secret|token(?!\.)|credential(?!s\.)|api[._-]?key|access[._-]?key"
    r"|jaas[._]config|user[._]info|private[._]key|keystore[._]key$|\bkey[._]pem",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """Return whether the value of a property is a secret, judged by its name.

    Args:
        name: Name of the property, with or without a prefix.
    """
    return _SECRET.search(name) is not None


def without_secrets(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties for logs and messages, with the secret values replaced.

    Args:
        properties: Values by name.
    """
    return {
        name: HIDDEN if value and is_secret(name) else value for name, value in properties.items()
    }
