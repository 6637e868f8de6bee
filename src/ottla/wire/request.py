"""Requests whose responses have a static type.

`ottla.wire.rpc` has a function for each API, which takes the fields of the request as keyword
arguments. A type checker rejects a wrong field, and knows the type of the response:

    response = await cluster.call(rpc.list_groups(states_filter=["Stable"]))
    names = [group.group_id for group in response.groups]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

from ottla.wire.api import Api

ResponseT = TypeVar("ResponseT", covariant=True)


class Request(NamedTuple, Generic[ResponseT]):
    """A request to encode, with the type of its response. Create it with `ottla.wire.rpc`."""

    api: Api
    body: Mapping[str, object]
    """Fields of the request. Kafka's defaults apply to absent ones."""

    def __repr__(self) -> str:
        return f"Request({self.api.name})"  # the body may contain credentials
