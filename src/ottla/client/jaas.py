"""Options in the JAAS configuration of Java's clients."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.base.jaas import JaasError, parse_jaas
from ottla.client.errors import InvalidConfig


def jaas_options(text: str) -> Mapping[str, str]:
    """Return the options of a login module.

    Args:
        text: Value of `sasl.jaas.config`, which may be empty: `Module required name="value" …;`.

    Raises:
        InvalidConfig: The value is not one login module.
    """
    if not text.strip():
        return {}
    try:
        return parse_jaas(text).options
    except JaasError as error:
        raise InvalidConfig(f"Invalid value of sasl.jaas.config: it {error}.") from None
