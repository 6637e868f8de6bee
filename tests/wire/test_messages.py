"""The generated types of `ottla.wire.messages` match the schemas."""

from __future__ import annotations

import importlib
from typing import get_type_hints

import pytest
from codegen import messages

from ottla.wire import codec, schema
from ottla.wire.api import Api


@pytest.mark.parametrize("api", Api, ids=lambda api: api.name)
def test_module_is_what_the_generator_writes(api: Api) -> None:
    path = messages.PACKAGE / f"{messages.module_name(api)}.py"
    assert path.read_text(encoding="utf-8") == messages.render(api), "run `make codegen`"


def test_package_has_no_other_modules() -> None:
    found = {path.stem for path in messages.PACKAGE.glob("*.py")} - {"__init__"}
    assert found == {messages.module_name(api) for api in Api}


@pytest.mark.parametrize("api", Api, ids=lambda api: api.name)
def test_types_have_the_fields_of_the_codec(api: Api) -> None:
    module = importlib.import_module(f"ottla.wire.messages.{messages.module_name(api)}")
    newest = schema.versions(api)[-1]
    for kind in messages.KINDS:
        name = schema.message_struct(api, newest, kind).name
        fields = codec._all_fields(api, kind, name).keys()
        assert get_type_hints(getattr(module, name)).keys() == fields
        assert get_type_hints(getattr(module, f"{name}Dict")).keys() == fields
