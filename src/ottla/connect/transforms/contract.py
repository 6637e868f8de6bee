"""Base classes of transforms, which turn a record into another one or drop it.

Transforms must be pure: the same record always gives the same result. Batches that are processed
again after a crash depend on it. A transform that fails raises DataError (`errors.tolerance`).

Schemas are transformed once and cached (`made_of`), because thousands of records share one. The
results then share a schema object as well, and converters, which cache by identity, need not
process it again for each record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from ottla.base.config.definition import ConfigType
from ottla.connect.data import ConnectRecord, DataError, Schema, Type
from ottla.connect.definition import Definition, Settings, key
from ottla.connect.schema_cache import SchemaCache

KEY, VALUE = "key", "value"
MAX_SCHEMAS = 1000
"""Maximum number of schemas in a transform's cache."""
NULL_DEFAULT = key("replace.null.with.default", ConfigType.BOOLEAN, True,
                   "Whether to replace null by the field's default.")  # fmt: skip


class Transform(ABC):
    """Base class of transforms, which change or drop single records.

    Args:
        settings: Values of the properties in `definition`.
        part: `"key"` or `"value"`, for classes with `has_parts`.

    Raises:
        ValueError: Settings exclude each other.
    """

    definition: ClassVar[Definition] = Definition()
    """Properties of the transform."""
    has_parts: ClassVar[bool] = False
    """Whether the class is configured with the suffix `$Key` or `$Value`."""
    on_columns: bool = False
    """Whether `apply` also works on a record whose values are columns."""

    def __init__(self, settings: Settings, part: str = VALUE) -> None:
        self.settings = settings
        self.part = part

    @abstractmethod
    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        """Return the changed record, or None to drop it.

        Args:
            record: The record.

        Raises:
            DataError: The record cannot be transformed.
        """


class PartTransform(Transform):
    """Transform of the key or the value."""

    has_parts = True

    def __init__(self, settings: Settings, part: str = VALUE) -> None:
        super().__init__(settings, part)
        self.made_of: SchemaCache[Schema, Schema] = SchemaCache(MAX_SCHEMAS, self.new_schema)
        """Cache of transformed schemas, computed by `new_schema`."""
        self._defaults: SchemaCache[Schema, dict[str, Any]] = SchemaCache(MAX_SCHEMAS, _defaults)

    def new_schema(self, schema: Schema) -> Schema:
        """Return the transformed schema. It may depend only on the schema and the settings."""
        return schema

    def get(self, record: ConnectRecord) -> tuple[Schema | None, Any]:
        if self.part == KEY:
            return record.key_schema, record.key
        return record.value_schema, record.value

    def put(self, record: ConnectRecord, schema: Schema | None, value: Any) -> ConnectRecord:
        if self.part == KEY:
            return record.with_key(schema, value)
        return record.with_value(schema, value)

    def struct(self, schema: Schema | None, value: Any) -> dict[str, Any]:
        """Return the value, which must be a struct or, without a schema, a map.

        Nulls are replaced by the field's default unless `replace.null.with.default` is false.
        """
        is_struct = schema is None or schema.type is Type.STRUCT
        if not is_struct or not isinstance(value, dict):
            kind = schema.type.value if schema is not None else type(value).__name__
            raise DataError(
                f"{type(self).__name__} requires a struct, but the {self.part} is {kind}"
            )
        if schema is None or not self.settings.get(NULL_DEFAULT.name, True):
            return value
        defaults = self._defaults.get(schema)
        if not defaults:
            return value
        missing = {name: each for name, each in defaults.items() if value.get(name) is None}
        return {**value, **missing} if missing else value


def _defaults(schema: Schema) -> dict[str, Any]:
    return {
        each.name: each.schema.default
        for each in schema.fields
        if each.schema.default is not None
    }  # fmt: skip


class Predicate(ABC):
    """Base class of predicates, which select the records that a transform changes.

    Args:
        settings: Values of the properties in `definition`.
    """

    definition: ClassVar[Definition] = Definition()
    """Properties of the predicate."""
    on_columns: ClassVar[bool] = False
    """Whether `test` also works on a record whose values are columns."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @abstractmethod
    def test(self, record: ConnectRecord) -> bool:
        """Return whether the transform applies to a record.

        Args:
            record: The record.
        """
