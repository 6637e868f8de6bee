"""Plugins and their properties, as `/connector-plugins` returns them.

The list contains the plugins that can run in this worker, as Kafka's clients expect.
`?includeMissing=true` appends the others as `{"class": …, "missing": …}`, with the missing package
and the command that installs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.base.config.definition import ConfigKey, format_value
from ottla.base.config.secrets import HIDDEN
from ottla.connect.api import SourceConnector
from ottla.connect.config import COMMON, SINK, SOURCE, Validation, validate
from ottla.connect.definition import Definition
from ottla.connect.plugins import (
    CONVERTERS,
    PREDICATES,
    TRANSFORMS,
    connector_class,
    connector_plugins,
    converter_class,
    missing_connectors,
    missing_package,
    predicate_class,
    short_name,
)
from ottla.connect.rest.connectors import texts
from ottla.connect.rest.exchange import Request, Response, RestError


def plugins(*, connectors_only: bool, include_missing: bool = False) -> list[dict[str, Any]]:
    """Return the plugins that can run here and, on request, those that cannot.

    `guarantee` and `missing` are additions to Kafka's fields.
    """
    found: list[dict[str, Any]] = [
        {"class": each.name, "type": each.kind, "version": each.version,
         "guarantee": each.guarantee}
        for each in connector_plugins()
    ]  # fmt: skip
    if include_missing:
        found += [{"class": each.name, "missing": each.missing} for each in missing_connectors()]
    if connectors_only:
        return found
    for kind, names in (
        ("converter", CONVERTERS), ("transformation", TRANSFORMS), ("predicate", PREDICATES),
    ):  # fmt: skip
        for name in sorted(names):
            missing = missing_package(name)
            if missing is None:
                found.append({"class": name, "type": kind})
            elif include_missing:
                found.append({"class": name, "type": kind, "missing": missing})
    return found


def plugin_config(name: str) -> list[dict[str, Any]]:
    """Return the properties of a plugin; raise ValueError if the name is unknown."""
    definition = _definition(name)
    return [
        _key(each, "Common", order, each.name in definition.required)
        for order, each in enumerate(definition, 1)
    ]


def _definition(name: str) -> Definition:
    try:
        found = connector_class(name)
    except ValueError as error:
        for lookup in (converter_class, predicate_class):
            try:
                return lookup(name).definition
            except ValueError:
                continue
        raise error from None
    role = SOURCE if issubclass(found, SourceConnector) else SINK
    return COMMON + role + found.definition


def validated(properties: Mapping[str, str], worker: Mapping[str, str]) -> dict[str, Any]:
    """Return the response of `PUT /connector-plugins/…/config/validate`."""
    found = validate(properties, worker)
    return {
        "name": properties.get("connector.class", ""),
        "error_count": sum(map(len, found.errors.values())),
        "groups": [group for group, _ in found.groups],
        "configs": _configs(found),
    }


def _configs(found: Validation) -> list[dict[str, Any]]:
    data: list[dict[str, Any]] = []
    shown = set()
    for group, definition in found.groups:
        for order, each in enumerate(definition, 1):
            shown.add(each.name)
            data.append({
                "definition": _key(each, group, order, each.name in definition.required),
                "value": _value(each.name, found, format_value(each.default), each.sensitive),
            })  # fmt: skip
    # Errors of properties without a definition, such as the type of an unknown transform.
    data += [
        {"definition": None, "value": _value(name, found, None)}
        for name in found.errors
        if name not in shown
    ]
    return data


def _value(
    name: str, found: Validation, default: str | None, is_secret: bool = False
) -> dict[str, Any]:
    value = found.submitted.get(name, default)
    return {
        "name": name,
        "value": HIDDEN if is_secret and value else value,
        "recommended_values": [],
        "errors": found.errors.get(name, []),
        "visible": True,
    }


def _key(each: ConfigKey, group: str, order: int, required: bool) -> dict[str, Any]:
    return {
        "name": each.name,
        "type": each.type.name,
        "required": required,
        "default_value": format_value(each.default),
        "importance": each.importance.name,
        "documentation": each.doc,
        "group": group,
        "width": "MEDIUM",
        "display_name": each.name,
        "dependents": [],
        "order": order,
    }


# ------------------------------------------------------------------------------------- routes


def _plugins(request: Request) -> Response:
    """Return the connector plugins that can run in this worker.

    `?connectorsOnly=false` adds converters, transforms and predicates. `?includeMissing=true` adds
    the plugins that need a package that is not installed, and names the package.
    """
    return Response(
        200,
        plugins(
            connectors_only=request.flag("connectorsOnly", "true"),
            include_missing=request.flag("includeMissing", "false"),
        ),
    )


def _plugin_config(request: Request, name: str) -> Response:
    """Return the properties of a plugin: types, defaults and meanings."""
    try:
        return Response(200, plugin_config(name))
    except ValueError as error:
        raise RestError(404, str(error)) from None


def _validate(request: Request, name: str) -> Response:
    """Validate a configuration without creating a connector.

    The body is the configuration. The response has all properties with their values and errors, and
    the number of errors in `error_count`.
    """
    properties = texts(request.json())
    named = properties.setdefault("connector.class", name)
    if short_name("connector", named) != short_name("connector", name):
        raise RestError(400, f"Included connector type {named} does not match request type {name}")
    return Response(200, validated(properties, request.herder.config.given))


_P = r"/connector-plugins/([^/]+)"
ROUTES = (
    ("GET", "/connector-plugins", _plugins),
    ("GET", f"{_P}/config", _plugin_config),
    ("PUT", f"{_P}/config/validate", _validate),
)
