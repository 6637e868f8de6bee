"""Checks that request handlers name the types of what they take and return."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HANDLERS = ROOT / "src" / "ottla" / "broker" / "handlers"
UNTYPED = {"Any", "Body"}
"""`typing.Any`, and the alias for a response of any API."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def signatures(source: str) -> Iterator[tuple[Function, list[ast.expr | None]]]:
    """Yield each function of a module with the annotations of its arguments and its result."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Function):
            arguments = node.args
            named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            variable = [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
            annotated = [each for each in named + variable if each.arg not in ("self", "cls")]
            yield node, [*(each.annotation for each in annotated), node.returns]


def names_in(annotation: ast.expr) -> set[str]:
    return {
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(annotation)
        if isinstance(node, ast.Name | ast.Attribute)
    }


def findings(source: str, name: str) -> Iterator[str]:
    for function, types in signatures(source):
        for annotation in types:
            found = UNTYPED if annotation is None else UNTYPED & names_in(annotation)
            if found:
                yield f"{name}:{function.lineno}: {function.name} has no exact types"
                break


def test_no_function_of_a_handler_has_any_in_its_signature() -> None:
    files = sorted(HANDLERS.glob("*.py"))
    assert len(files) > 40
    found = [
        finding
        for file in files
        for finding in findings(file.read_text(), str(file.relative_to(ROOT)))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "signature",
    [
        "def f(x: Any) -> int",
        "def f(x: int) -> dict[str, Any] | None",
        "async def f(x: typing.Any) -> None",
        "def f(*, x: list[Body]) -> None",
        "def f(x) -> None",
        "def f(x: int)",
    ],
)
def test_the_check_names_file_and_line(signature: str) -> None:
    (found,) = findings(f"\n{signature}: ...", "module.py")
    assert found == "module.py:2: f has no exact types"
    assert not [*findings("def f(self, x: int) -> list[str]: ...", "module.py")]
