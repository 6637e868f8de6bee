"""Expressions: trees of columns, constants and operators that result from traced functions.

An expression stands in for a value while a function is called once. Operators build a larger
expression; anything that needs the value itself (`if`, `and`, `len`, `int`, an f-string) raises
`NotTraceable`, and the function runs in Python instead.

Operators are traced only where Spark and Python agree. `//`, `**` and `%` by a negative number
differ, so they are not traced; `+` of strings is a concatenation; numbers are not compared with
strings. Nulls follow SQL: an expression of a null is null, and a filter drops it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ottla.streams.errors import listed
from ottla.streams.plan.shapes import DataShape, is_integer, type_family, wider_type


class NotTraceable(Exception):
    """The function needs actual values, so it must run in Python."""


@dataclass(frozen=True, eq=False)
class Expression:
    """Base of all expressions. `type` is None if only Spark can infer it."""

    type: str | None

    def __lt__(self, other: Any) -> Expression:
        return _compared("<", self, other)

    def __le__(self, other: Any) -> Expression:
        return _compared("<=", self, other)

    def __gt__(self, other: Any) -> Expression:
        return _compared(">", self, other)

    def __ge__(self, other: Any) -> Expression:
        return _compared(">=", self, other)

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return _compared("=", self, other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return _compared("!=", self, other)

    def __and__(self, other: Any) -> Expression:
        return _logical("and", self, other)

    def __rand__(self, other: Any) -> Expression:
        return _logical("and", other, self)

    def __or__(self, other: Any) -> Expression:
        return _logical("or", self, other)

    def __ror__(self, other: Any) -> Expression:
        return _logical("or", other, self)

    def __invert__(self) -> Expression:
        if self.type != "boolean":
            raise NotTraceable("~ of an operand that is not a condition")
        return Call("boolean", "not", (self,))

    def __add__(self, other: Any) -> Expression:
        return _added(self, other)

    def __radd__(self, other: Any) -> Expression:
        return _added(other, self)

    def __sub__(self, other: Any) -> Expression:
        return _arithmetic("-", self, other)

    def __rsub__(self, other: Any) -> Expression:
        return _arithmetic("-", other, self)

    def __mul__(self, other: Any) -> Expression:
        return _arithmetic("*", self, other)

    def __rmul__(self, other: Any) -> Expression:
        return _arithmetic("*", other, self)

    def __truediv__(self, other: Any) -> Expression:
        return _arithmetic("/", self, other)

    def __rtruediv__(self, other: Any) -> Expression:
        return _arithmetic("/", other, self)

    def __mod__(self, other: Any) -> Expression:
        if not is_integer(self.type) or type(other) is not int or other <= 0:
            raise NotTraceable("% other than of an integer by a positive constant")
        return Call(self.type, "pmod", (self, constant(other)))

    def __neg__(self) -> Expression:
        return Call(_number_type(self), "negative", (self,))

    def __abs__(self) -> Expression:
        return Call(_number_type(self), "abs", (self,))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.type == "string" and name in STRING_METHODS:
            return StringMethod(self, name)
        raise NotTraceable(f".{name} of a {self.type or 'column'}")

    def __bool__(self) -> bool:
        raise NotTraceable("`if`, `and`, `or`, `not` or `in`: use &, | and ~ to stay on columns")

    def __iter__(self) -> Iterator[Any]:
        raise NotTraceable("iteration")

    def __len__(self) -> int:
        raise NotTraceable("len()")

    def __int__(self) -> int:
        raise NotTraceable("int()")

    def __float__(self) -> float:
        raise NotTraceable("float() or a function of numbers")

    def __index__(self) -> int:
        raise NotTraceable("int()")

    def __str__(self) -> str:
        raise NotTraceable("str()")

    def __format__(self, form: str) -> str:
        raise NotTraceable("an f-string")

    def __hash__(self) -> int:
        raise NotTraceable("a lookup in a set or dict")

    def __contains__(self, item: object) -> bool:
        raise NotTraceable("`in`")

    def __getitem__(self, item: object) -> Any:
        raise NotTraceable("[…]")


@dataclass(frozen=True, eq=False)
class ColumnReference(Expression):
    """Column of a record. `of` is its origin: value, key, left or right.

    `name` is None for a plain value.
    """

    origin: str
    name: str | None


@dataclass(frozen=True, eq=False)
class EventTime(Expression):
    pass


@dataclass(frozen=True, eq=False)
class Constant(Expression):
    value: object


@dataclass(frozen=True, eq=False)
class Call(Expression):
    """Call of a Spark SQL operator or function."""

    function: str
    arguments: tuple[Expression, ...]


class StringMethod:
    def __init__(self, text: Expression, name: str) -> None:
        self._text = text
        self._name = name

    def __call__(self, *arguments: Any) -> Expression:
        count, function, of_type = STRING_METHODS[self._name]
        if len(arguments) != count or not all(isinstance(each, str) for each in arguments):
            raise NotTraceable(f".{self._name}() with these arguments")
        if function == "split" and not arguments[0]:
            raise NotTraceable(".split('')")
        return Call(of_type, function, (self._text, *map(constant, arguments)))


STRING_METHODS: dict[str, tuple[int, str, str]] = {
    "upper": (0, "upper", "string"),
    "lower": (0, "lower", "string"),
    "startswith": (1, "startswith", "boolean"),
    "endswith": (1, "endswith", "boolean"),
    "split": (1, "split", "array<string>"),
}
"""String methods that mean the same in Spark: number of arguments, function, type of the result."""


class TracedRecord:
    """Stand-in for a record during tracing, with its columns as attributes and items."""

    _shape: DataShape
    _of: str

    def __init__(self, shape: DataShape, of: str) -> None:
        self.__dict__["_shape"] = shape
        self.__dict__["_of"] = of

    def __getattr__(self, name: str) -> Expression:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Expression:
        column = self._shape.find(name)
        if column is None:
            raise UnknownColumn(name, self._shape.names)
        return ColumnReference(column.type, self._of, column.name)

    def __setattr__(self, name: str, value: object) -> None:
        raise NotTraceable("assignment to a record")

    def __iter__(self) -> Iterator[Any]:
        raise NotTraceable("iteration over a record")

    def __bool__(self) -> bool:
        raise NotTraceable("`if` on a record")


class UnknownColumn(Exception):
    def __init__(self, name: str, valid: tuple[str, ...]) -> None:
        super().__init__(f"unknown column {name!r}; columns: {listed(valid)}")


def stand_in(shape: DataShape, of: str) -> TracedRecord | Expression:
    """Return the stand-in for a key or value with which a traced function is called."""
    if shape.is_record:
        return TracedRecord(shape, of)
    return ColumnReference(shape.columns[0].type, of, None)


_CONSTANTS: dict[type, str] = {
    bool: "boolean",
    int: "int",
    float: "double",
    str: "string",
    bytes: "binary",
}


def constant(value: object) -> Expression:
    if isinstance(value, Expression):
        return value
    if value is None:
        return Constant("void", None)
    of_type = _CONSTANTS.get(type(value))
    if of_type is None:
        raise NotTraceable(f"a constant of type {type(value).__name__}")
    if of_type == "int" and not -(2**31) <= int(value) < 2**31:  # type: ignore[call-overload]
        of_type = "bigint"
    return Constant(of_type, value)


def _compared(operator: str, left: Any, right: Any) -> Expression:
    left, right = constant(left), constant(right)
    if right.type == "void" or left.type == "void":
        raise NotTraceable("a comparison with None: use st.is_null")
    if type_family(left.type) is None or type_family(left.type) != type_family(right.type):
        raise NotTraceable(f"{left.type or '?'} {operator} {right.type or '?'}")
    return Call("boolean", operator, (left, right))


def _logical(operator: str, left: Any, right: Any) -> Expression:
    left, right = constant(left), constant(right)
    if left.type != "boolean" or right.type != "boolean":
        raise NotTraceable("& or | of operands that are not conditions")
    return Call("boolean", operator, (left, right))


def _added(left: Any, right: Any) -> Expression:
    left, right = constant(left), constant(right)
    if type_family(left.type) == type_family(right.type) == "string":
        return Call("string", "concat", (left, right))
    return _arithmetic("+", left, right)


def _arithmetic(operator: str, left: Any, right: Any) -> Expression:
    left, right = constant(left), constant(right)
    if not type_family(left.type) == type_family(right.type) == "number":
        raise NotTraceable(f"{left.type or '?'} {operator} {right.type or '?'}")
    of_type = wider_type(left.type, right.type)
    if operator == "/" and (is_integer(left.type) or of_type == "double"):
        of_type = "double" if is_integer(right.type) or of_type == "double" else None
    return Call(of_type, operator, (left, right))


def _number_type(expression: Expression) -> str | None:
    if type_family(expression.type) != "number":
        raise NotTraceable(f"a number, not {expression.type or '?'}")
    return expression.type


INFIX = frozenset(("<", "<=", ">", ">=", "=", "!=", "and", "or", "+", "-", "*", "/"))


def to_sql(expression: Expression) -> str:
    """Return the expression as SQL, for people."""
    match expression:
        case ColumnReference(origin=of, name=name):
            return (name or of) if of == "value" else f"{of}.{name}" if name else of
        case Constant(value=value):
            return "null" if value is None else repr(value)
        case EventTime():
            return "timestamp"
        case Call(function="not", arguments=(inner,)):
            return f"not {_nested(inner)}"
        case Call(function="negative", arguments=(inner,)):
            return f"-{_nested(inner)}"
        case Call(function=function, arguments=(left, right)) if function in INFIX:
            return f"{_nested(left)} {function} {_nested(right)}"
        case Call(function=function, arguments=arguments):
            return f"{function}({', '.join(map(to_sql, arguments))})"
    raise AssertionError(f"unknown expression {type(expression).__name__}")


def _nested(expression: Expression) -> str:
    text = to_sql(expression)
    return f"({text})" if isinstance(expression, Call) and expression.function in INFIX else text


# ----------------------------------------------- functions for users, of columns and plain values


def is_null(value: Any) -> Any:
    """Return whether a value is null.

    Args:
        value: A column or a plain value.
    """
    if isinstance(value, Expression):
        return Call("boolean", "isnull", (value,))
    return value is None


def coalesce(*values: Any) -> Any:
    """Return the first value that is not null, or null.

    Args:
        values: Columns or plain values of the same type.
    """
    if not any(isinstance(each, Expression) for each in values):
        return next((each for each in values if each is not None), None)
    expressions = tuple(map(constant, values))
    if len({type_family(each.type) for each in expressions}) != 1:
        raise NotTraceable("coalesce() of different types")
    return Call(
        expressions[0].type if len({each.type for each in expressions}) == 1 else None,
        "coalesce",
        expressions,
    )
