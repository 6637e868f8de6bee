"""Principals: the types and names of authenticated clients."""

from __future__ import annotations

from dataclasses import dataclass, field

USER = "User"


@dataclass(frozen=True, slots=True)
class Principal:
    """The type and the name of a principal, such as `User:alice`."""

    type: str
    """Type of the principal; `User` for all that brokers authenticate."""
    name: str
    """Name of the user, or the distinguished name of a certificate."""
    is_token_authenticated: bool = field(default=False, compare=False)
    """Whether the client logged in with a delegation token of the principal."""

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""The principal of clients that are not authenticated."""
