"""Reference sections for classes, functions and constants."""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from generator.docstrings import markdown

WIDTH = 88
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_LONG = 24
"""Length above which a default is shown by the name of its constant, if it has one."""


def described(
    name: str,
    thing: Any,
    module: str,
    hidden: Sequence[str] = (),
    shown: Sequence[type] = (),
) -> Iterator[str]:
    """Yield the section of one public name.

    Args:
        name: The name as the reader imports it.
        thing: The object behind it.
        module: The module that the object is defined in, for constants.
        hidden: Members that only Ottla itself calls.
        shown: Classes that have a section on the same page; their members are not repeated in the
            sections of their subclasses.
    """
    yield f"### {name}\n"
    if not inspect.isclass(thing):
        if callable(thing) and hasattr(thing, "__name__"):
            yield from signature(name, thing)
        yield from markdown(words_of(thing, name, module))
        return
    if not issubclass(thing, enum.Enum | BaseException):
        yield from signature(name, thing)
    yield from markdown(words_of(thing, name, module))
    yield from markdown(getattr(vars(thing).get("__init__"), "__doc__", None) or "")
    yield from _inherited(thing, shown)
    yield from _attributes(thing, hidden, shown)
    for each, member in members(thing, hidden, shown):
        yield f"#### {name}.{each}\n"
        if isinstance(member, property):
            yield "*Property.*\n"
        else:
            yield from signature(f"{name}.{each}", member, without_self=True)
        yield from markdown(inspect.getdoc(member) or "")


def words_of(thing: Any, name: str, module: str) -> str:
    """Return the docstring of an object, or '' if it has none of its own."""
    if inspect.isclass(thing) or inspect.isroutine(thing):
        words = thing.__doc__ or ""
        # Python generates the signature as the docstring of a dataclass without one.
        return "" if words.startswith(f"{thing.__name__}(") else words
    return _strings_after(module).get(name, "")


def entries(
    name: str,
    thing: Any,
    module: str,
    hidden: Sequence[str] = (),
    shown: Sequence[type] = (),
) -> Iterator[tuple[str, str]]:
    """Yield a public name, its members and its fields with their docstrings.

    A docstring that is missing is ''. The arguments are those of `described`.
    """
    yield name, words_of(thing, name, module)
    if inspect.isclass(thing):
        for each, member in members(thing, hidden, shown):
            yield f"{name}.{each}", inspect.getdoc(member) or ""
        for each, words in attributes(thing, hidden, shown).items():
            yield f"{name}.{each}", words


def members(
    thing: type, hidden: Sequence[str] = (), shown: Sequence[type] = ()
) -> Iterator[tuple[str, Any]]:
    """Yield public methods and properties in the order of the code, inherited ones last.

    Members of a base class in `shown` are left out unless the class overrides them.
    """
    seen = set()
    for base in _bases(thing, shown):
        for name, member in vars(base).items():
            if name in seen or name.startswith("_") or name in hidden:
                continue
            seen.add(name)
            if isinstance(member, staticmethod | classmethod):
                member = member.__func__
            if inspect.isfunction(member) or isinstance(member, property):
                yield name, member


def attributes(
    thing: type, hidden: Sequence[str] = (), shown: Sequence[type] = ()
) -> dict[str, str]:
    """Return the docstrings of annotated fields, and of other attributes that have one.

    Fields of an enumeration and of a base class in `shown` are left out.
    """
    if issubclass(thing, enum.Enum):
        return {}
    found: dict[str, str] = {}
    for base in reversed(_bases(thing, shown)):
        found |= dict.fromkeys(inspect.get_annotations(base), "")
        found |= _strings_after(base.__module__, base.__qualname__)
    return {
        name: words
        for name, words in found.items()
        if not name.startswith("_") and name not in hidden
    }


def _bases(thing: type, shown: Sequence[type]) -> list[type]:
    """Return a class and its bases in Ottla, up to those with a section of their own."""
    ours = (each for each in thing.__mro__ if each.__module__.startswith("ottla"))
    elsewhere = {base for each in thing.__mro__[1:] if each in shown for base in each.__mro__}
    return [each for each in ours if each not in elsewhere]


def _inherited(thing: type, shown: Sequence[type]) -> Iterator[str]:
    """Yield links to the sections of the base classes."""
    found = [each for each in thing.__mro__[1:] if each in shown]
    if found:
        links = ", ".join(f"[{each.__name__}](#{each.__name__.lower()})" for each in found)
        yield f"Inherits the members of {links}.\n"


def _attributes(thing: type, hidden: Sequence[str], shown: Sequence[type]) -> Iterator[str]:
    """Yield attributes that have a docstring, and the members of an enumeration."""
    if issubclass(thing, enum.Enum):
        yield from (f"- `{each.name}`" for each in thing)
        yield ""
        return
    found = {name: words for name, words in attributes(thing, hidden, shown).items() if words}
    if found:
        yield "**Attributes**\n"
        for name, words in found.items():
            yield f"- `{name}`: {' '.join(' '.join(markdown(words)).split())}"
        yield ""


@cache
def _strings_after(module: str, within: str = "") -> dict[str, str]:
    """Return the docstrings of assignments: of a module, or of a class of it."""
    tree: Any = ast.parse(inspect.getsource(importlib.import_module(module)))
    for name in filter(None, within.split(".")):
        tree = next(each for each in tree.body if getattr(each, "name", "") == name)
    bodies = [tree.body]
    bodies += [each.body for each in tree.body if getattr(each, "name", "") == "__init__"]
    return {
        _name(one): other.value.value
        for body in bodies
        for one, other in pairwise(body)
        if isinstance(one, ast.Assign | ast.AnnAssign)
        and isinstance(other, ast.Expr)
        and isinstance(other.value, ast.Constant)
        and isinstance(other.value.value, str)
    }


def _name(assigned: ast.Assign | ast.AnnAssign) -> str:
    target = assigned.targets[0] if isinstance(assigned, ast.Assign) else assigned.target
    return target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")


# ---------------------------------------------------------------------------------- signatures


def signature(name: str, thing: Callable[..., Any], *, without_self: bool = False) -> list[str]:
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return []
    parameters = list(found.parameters.values())
    if without_self and parameters and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    shown = _with_markers(parameters, thing)
    returned = ""
    if found.return_annotation not in (inspect.Signature.empty, None, "None"):
        returned = f" -> {_annotation(found.return_annotation)}"
    prefix = "async " if inspect.iscoroutinefunction(thing) else ""
    line = f"{prefix}{name}({', '.join(shown)}){returned}"
    if len(line) > WIDTH:
        inside = "".join(f"    {each},\n" for each in shown)
        line = f"{prefix}{name}(\n{inside}){returned}"
    return ['<div class="signature" markdown>', "", "```python", line, "```", "", "</div>", ""]


def _with_markers(parameters: list[inspect.Parameter], thing: Any) -> list[str]:
    """Return the parameters as text, with the `/` and `*` that say how they are passed."""
    shown: list[str] = []
    for index, each in enumerate(parameters):
        before = parameters[index - 1].kind if index else None
        if before is each.POSITIONAL_ONLY and each.kind is not each.POSITIONAL_ONLY:
            shown.append("/")
        if each.kind is each.KEYWORD_ONLY and before not in (
            each.KEYWORD_ONLY,
            each.VAR_POSITIONAL,
        ):
            shown.append("*")
        shown.append(_parameter(each, thing))
    return shown


def _parameter(parameter: inspect.Parameter, thing: Any) -> str:
    marks = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
    text = f"{marks.get(parameter.kind, '')}{parameter.name}"
    typed = parameter.annotation is not parameter.empty
    if typed:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is parameter.empty:
        return text
    return (
        f"{text} = {_default(parameter.default, thing)}"
        if typed
        else f"{text}={parameter.default!r}"
    )


def _annotation(annotation: Any) -> str:
    if isinstance(annotation, str):
        return annotation
    return inspect.formatannotation(annotation).replace("typing.", "")


def _default(value: Any, thing: Any) -> str:
    text = _ADDRESS.sub("", repr(value))
    if len(text) <= _LONG and "<" not in text:
        return text
    init = thing.__init__ if inspect.isclass(thing) else thing
    names = getattr(inspect.unwrap(init), "__globals__", {})
    return next(
        (name for name, each in names.items() if each is value), "…" if "<" in text else text
    )
