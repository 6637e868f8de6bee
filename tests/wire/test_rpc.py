"""The generated functions of `ottla.wire.rpc` match the APIs."""

from __future__ import annotations

import importlib
from typing import Unpack, get_type_hints

import pytest
from codegen import messages
from codegen import rpc as generator

from ottla.wire import rpc
from ottla.wire.api import Api
from ottla.wire.request import Request


def test_module_is_what_the_generator_writes() -> None:
    assert generator.MODULE.read_text(encoding="utf-8") == generator.render(), "run `make codegen`"


@pytest.mark.parametrize("api", Api, ids=lambda api: api.name)
def test_function_connects_the_types_of_its_api(api: Api) -> None:
    name = messages.module_name(api)
    function = getattr(rpc, name)
    module = importlib.import_module(f"ottla.wire.messages.{name}")
    title = messages.schema_title(api)
    hints = get_type_hints(function, vars(module) | vars(rpc))
    assert hints["body"] == Unpack[getattr(module, f"{title}RequestDict")]
    assert hints["return"] == Request[getattr(module, f"{title}Response")]
    assert function() == Request(api, {})


def test_the_body_has_the_given_fields_only() -> None:
    request = rpc.list_groups(states_filter=["Stable"])
    assert request == (Api.LIST_GROUPS, {"states_filter": ["Stable"]})
