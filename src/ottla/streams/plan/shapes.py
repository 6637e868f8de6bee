"""Shapes of keys and values: the named columns of a record, or one plain value.

Types are Spark's DDL in lower case (`double`, `array<string>`, `struct<a:int>`), or None if only
Spark can infer them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.streams.errors import TopologyError, listed

VALUE = "value"

_ALIASES = {
    "long": "bigint",
    "integer": "int",
    "short": "smallint",
    "byte": "tinyint",
    "real": "float",
    "bool": "boolean",
    "str": "string",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
}
_PLAIN_TYPES = {
    "string", "binary", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double",
    "date", "timestamp", "timestamp_ntz", "decimal", "variant",
}  # fmt: skip
_NESTED = ("decimal(", "array<", "map<", "struct<", "varchar(", "char(")
_INTEGERS = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True)
class Column:
    name: str
    type: str | None

    def __str__(self) -> str:
        return f"{self.name} {self.type or '?'}"


@dataclass(frozen=True)
class DataShape:
    """Columns of a key or value. Without `is_record`, one plain value."""

    columns: tuple[Column, ...]
    is_record: bool

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def find(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)

    def __str__(self) -> str:
        if not self.is_record:
            return self.columns[0].type or "?"
        return f"({listed(map(str, self.columns))})"


def plain_shape(of_type: str | None) -> DataShape:
    return DataShape((Column(VALUE, of_type),), is_record=False)


def record_shape(*columns: Column) -> DataShape:
    return DataShape(columns, is_record=True)


def parse_shape(schema: str) -> DataShape:
    """Parse a schema such as `"double"` or `"item string, total double"`."""
    try:
        return plain_shape(parse_type(schema))
    except TopologyError:
        return parse_record_shape(schema)


def parse_record_shape(ddl: str) -> DataShape:
    """Parse the schema of a record, such as `"id string, amount double"`."""
    columns = []
    for part in _split(ddl):
        name, _, of_type = part.strip().replace("\n", " ").partition(" ")
        name, of_type = name.rstrip(":"), of_type.strip()
        if not name or not of_type:
            raise TopologyError(
                f"schema {ddl!r}: {part.strip()!r} is not a column; write `name type`"
            )
        columns.append(Column(name.strip("`"), parse_type(of_type, ddl)))
    names = [column.name for column in columns]
    for name in names:
        if names.count(name) > 1:
            raise TopologyError(f"schema {ddl!r} has column {name!r} twice")
    return record_shape(*columns)


def parse_type(text: str, ddl: str | None = None) -> str:
    name = " ".join(text.split()).lower()
    name = _ALIASES.get(name, name)
    if name in _PLAIN_TYPES or name.startswith(_NESTED):
        return name
    raise TopologyError(
        f"schema {ddl or text!r}: {text!r} is not a type; types: {listed(sorted(_PLAIN_TYPES))}, "
        "decimal(p,s), array<…>, map<…>, struct<…>"
    )


def type_of(shape: DataShape) -> str:
    """Return the shape as one Spark type. A record is a struct."""
    if not shape.is_record:
        return shape.columns[0].type or "string"
    return f"struct<{', '.join(f'`{each.name}`: {each.type}' for each in shape.columns)}>"


def untyped_columns(*shapes: DataShape) -> list[str]:
    """Return the columns whose types only Spark can infer."""
    return [str(each) for shape in shapes for each in shape.columns if each.type is None]


def type_family(of_type: str | None) -> str | None:
    """Return the family of a type.

    Types of one family can be compared and added without a cast that changes their meaning.
    """
    if of_type is None:
        return None
    if of_type in _INTEGERS or of_type in ("float", "double") or of_type.startswith("decimal"):
        return "number"
    if of_type == "string" or of_type.startswith(("varchar", "char")):
        return "string"
    return of_type


def is_integer(of_type: str | None) -> bool:
    return of_type in _INTEGERS


def wider_type(left: str | None, right: str | None) -> str | None:
    """Return the type of a sum of two numbers, or None if only Spark can infer it."""
    if left == right and left is not None and not left.startswith("decimal"):
        return left
    if is_integer(left) and is_integer(right):
        return _INTEGERS[max(_INTEGERS.index(str(left)), _INTEGERS.index(str(right)))]
    if "double" in (left, right) and left is not None and right is not None:
        return "double"
    return None


def _split(ddl: str) -> list[str]:
    """Split at commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(ddl):
        if letter in "<(":
            depth += 1
        elif letter in ">)":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(ddl[start:at])
            start = at + 1
    return [*parts, ddl[start:]]
