"""Tracing of functions over records: call them once with stand-ins for the key and the value.

A function is traced only if one call represents all: it must not read the clock, draw a random
number or use anything that may change. The globals that it uses are therefore checked first;
constants, Ottla's own functions, pure builtins and other functions that pass the same test are
allowed. A function that cannot be traced runs in Python, over Arrow batches, and `reason` holds the
reason.

Functions take the value, or (key, value), or (key, value, timestamp).
"""

from __future__ import annotations

import builtins
import dis
import hashlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from ottla.streams.errors import topology_error
from ottla.streams.plan.expressions import (
    EventTime,
    Expression,
    NotTraceable,
    UnknownColumn,
    constant,
    stand_in,
    to_sql,
)
from ottla.streams.plan.shapes import DataShape

Function = Callable[..., Any]

_PURE_BUILTINS = frozenset(("abs", "dict", "tuple"))
_CONSTANT_TYPES = (bool, int, float, str, bytes, type(None))
_MAX_DEPTH = 8
"""Maximum depth to which functions that call other functions are inspected."""


@dataclass(frozen=True, eq=False)
class Traced:
    """Traced function. `outcome` is an expression, a dict of expressions, or a tuple of these."""

    outcome: Any


@dataclass(frozen=True, eq=False)
class InPython:
    """Function that runs in Python.

    `arity` selects its arguments: (value), (key, value) or (key, value, timestamp). With
    `catches_errors`, a record on which it raises is dropped and sent to the dead-letter topic.
    """

    function: Function
    arity: int
    reason: str
    catches_errors: bool = False

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    @property
    def fingerprint(self) -> str:
        """Hash of the function's code. A checkpoint is refused if it differs."""
        code = getattr(self.function, "__code__", None)
        if not isinstance(code, CodeType):
            return self.name
        return hashlib.sha256(b"".join(_codes(code))).hexdigest()[:8]


def trace(operator: str, function: Function, key: DataShape, value: DataShape) -> Traced | InPython:
    arity = _arity(operator, function)
    stand_ins = (stand_in(key, "key"), stand_in(value, "value"), EventTime("timestamp"))
    arguments = stand_ins[1:2] if arity == 1 else stand_ins[:arity]
    return _trace(operator, function, arity, arguments)


def in_python(
    operator: str, function: Function, reason: str, *, arities: tuple[int, ...] = (1, 2, 3)
) -> InPython:
    """Check a function that is not traced because it has side effects or state."""
    arity = _arity(operator, function, unknown=arities[0])
    if arity not in arities:
        raise topology_error(
            operator, f"the function must take {' or '.join(map(str, arities))} arguments"
        )
    return InPython(function, arity, reason)


def fingerprint_of_class(processor: type) -> str:
    """Return a hash of the code of all methods."""
    functions = [
        (name, each.__code__)
        for base in reversed(processor.__mro__)
        for name, each in vars(base).items()
        if isinstance(each, FunctionType) and base.__module__ != "ottla.streams.state.processors"
    ]
    codes = (b"".join((name.encode(), *_codes(code))) for name, code in functions)
    return hashlib.sha256(b"".join(codes)).hexdigest()[:8]


def trace_pair(
    operator: str, function: Function, left: DataShape, right: DataShape
) -> Traced | InPython:
    """Trace a function of two values, for joins and reducers."""
    if _arity(operator, function, unknown=2) != 2:
        raise topology_error(operator, "the function must take (left, right)")
    return _trace(operator, function, 2, (stand_in(left, "left"), stand_in(right, "right")))


def _trace(
    operator: str, function: Function, arity: int, arguments: tuple[Any, ...]
) -> Traced | InPython:
    reason = _why_not_traceable(function, _MAX_DEPTH)
    if reason is not None:
        return InPython(function, arity, reason)
    try:
        return Traced(_outcome(function(*arguments)))
    except UnknownColumn as error:
        raise topology_error(operator, str(error)) from None
    except NotTraceable as error:
        return InPython(function, arity, str(error))
    except Exception as error:
        return InPython(function, arity, f"{type(error).__name__} when called with columns")


def _outcome(result: Any) -> Any:
    if isinstance(result, dict):
        if not all(isinstance(name, str) for name in result):
            raise NotTraceable("a dict whose keys are not all strings")
        return {name: constant(each) for name, each in result.items()}
    if isinstance(result, tuple):
        return tuple(_outcome(each) for each in result)
    return constant(result)


def _arity(operator: str, function: Function, unknown: int = 1) -> int:
    """Return the number of positional arguments of a function.

    Returns `unknown` for functions that take any number of them, and for those without a signature,
    such as many functions written in C.
    """
    if not callable(function):
        raise topology_error(operator, f"{function!r} is not a function")
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return unknown
    places = [
        each
        for each in parameters
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
        and each.default is each.empty
    ]
    if not places and any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return unknown
    if len(places) not in (1, 2, 3):
        raise topology_error(
            operator, "the function must take (value), (key, value) or (key, value, timestamp)"
        )
    return len(places)


# ----------------------------------------------------------------------------------------- doubts


def _why_not_traceable(function: Function, depth: int) -> str | None:
    """Return why one call may not represent all calls, or None if it does."""
    if not isinstance(function, FunctionType):
        return "not a plain function"
    if depth == 0:
        return "functions nested too deeply"
    names = dict(_globals_of(function))
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    try:
        names |= {name: cell.cell_contents for name, cell in cells}
    except ValueError:
        return "a variable without a value"
    for name, value in names.items():
        if not _is_pure(value, depth):
            return f"uses {name}"
    return None


def _globals_of(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for code in _nested_codes(function.__code__):
        for each in dis.get_instructions(code):
            if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                name = str(each.argval)
                missing = getattr(builtins, name, _UNKNOWN)
                yield name, function.__globals__.get(name, missing)
            elif each.opname in ("STORE_GLOBAL", "DELETE_GLOBAL", "IMPORT_NAME"):
                yield str(each.argval), _UNKNOWN


def _is_pure(value: Any, depth: int) -> bool:
    if isinstance(value, (*_CONSTANT_TYPES, Expression)):
        return True
    if inspect.ismodule(value):
        return value.__name__ == "ottla.streams"
    if getattr(value, "__module__", "").startswith("ottla.streams"):
        return True
    name = getattr(value, "__name__", "")
    if getattr(builtins, name, _UNKNOWN) is value:
        return name in _PURE_BUILTINS
    return isinstance(value, FunctionType) and _why_not_traceable(value, depth - 1) is None


class _Unknown:
    pass


_UNKNOWN = _Unknown()


def _nested_codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _nested_codes(each)


def _codes(code: CodeType) -> Iterator[bytes]:
    for each in _nested_codes(code):
        plain = [one for one in each.co_consts if not isinstance(one, CodeType)]
        yield each.co_code + repr((plain, each.co_names)).encode()


def format_function(function: Traced | InPython) -> str:
    """Return the function as text, for `explain`."""
    if isinstance(function, InPython):
        return f"{function.name}()"
    return _format_outcome(function.outcome)


def _format_outcome(outcome: Any) -> str:
    if isinstance(outcome, dict):
        return ", ".join(f"{name}={to_sql(each)}" for name, each in outcome.items())
    if isinstance(outcome, tuple):
        return "; ".join(map(_format_outcome, outcome))
    return to_sql(outcome)
