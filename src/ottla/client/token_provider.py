"""Types of functions that provide OAuth 2 tokens for SASL/OAUTHBEARER."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

ProvidedToken: TypeAlias = (
    tuple[str, float] | tuple[str, float, str] | tuple[str, float, str, Mapping[str, str]]
)
"""A token, when it expires in seconds since 1970, and optionally the name of the principal and SASL
extensions. Brokers take the principal from the token itself."""

TokenProvider: TypeAlias = (
    Callable[[str], ProvidedToken]
    | Callable[[str], Awaitable[ProvidedToken]]
    | Callable[[], ProvidedToken]
    | Callable[[], Awaitable[ProvidedToken]]
)
"""Function for the argument `oauth_cb` of a client, which returns a new token.

It gets the property `sasl.oauthbearer.config` if it has a parameter. A coroutine function runs on
the client's event loop, any other function in a thread.
"""
