"""Tables written with `send_table` and read back with `read_table`."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla import Producer, UserError, read_table

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")

TIMEOUT_S = 60
COLUMNS: dict[str, list[Any]] = {
    "int": [1, 2, 2**62],
    "int with null": [1, None, 3],
    "float": [1.5, None, -3.0],
    "float without fractions": [1.0, 2.0, -3e20],
    "bool": [True, None, False],
    "string": ["a", 'say "b"\n', None],
    "list": [[1, 2], [], None],
    "struct": [{"x": 1, "y": "q"}, None, {"x": 2, "y": "r"}],
    "null": [None, None, None],
}
KEYS = ["1", "2", "3"]


class ArrowExport:
    """A data frame with only the Arrow interface, and the types that Polars exports."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self._table = pa.table({name: self._array(each) for name, each in columns.items()})

    @staticmethod
    def _array(values: list[Any]) -> Any:
        array = pa.array(values)
        if pa.types.is_string(array.type):
            return array.cast(pa.string_view())
        if pa.types.is_list(array.type):
            return array.cast(pa.large_list(array.type.value_type))
        return array

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


def pandas_with_an_index(columns: dict[str, list[Any]]) -> Any:
    return pd.DataFrame(columns, index=[7, 8, 9])


FRAMES: list[Callable[..., Any]] = [pa.table, pandas_with_an_index, ArrowExport]
if importlib.util.find_spec("polars") is not None:
    FRAMES.append(importlib.import_module("polars").DataFrame)


@pytest.fixture
def producer(bootstrap: str) -> Iterator[Producer]:
    with Producer(bootstrap) as producer:
        yield producer


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("name", COLUMNS)
def test_one_column_beside_the_key_comes_back(
    producer: Producer, bootstrap: str, topic: str, name: str, frame: Callable[..., Any]
) -> None:
    sent = frame({"k": KEYS, name: COLUMNS[name]})
    producer.send_table(topic, sent, key="k", partition=0).result(TIMEOUT_S)
    table = read_table(bootstrap, topic, columns=["key", "value"], value="json")
    assert table.column_names == ["key", name]
    assert table["key"].to_pylist() == [key.encode() for key in KEYS]
    assert table[name].to_pylist() == COLUMNS[name]
    is_float = name.startswith("float")
    assert not is_float or pa.types.is_float64(table.schema.field(name).type)


@pytest.mark.parametrize("frame", FRAMES)
def test_several_columns_come_back(
    producer: Producer, bootstrap: str, topic: str, frame: Callable[..., Any]
) -> None:
    producer.send_table(topic, frame({"k": KEYS, **COLUMNS}), key="k", partition=0).result(
        TIMEOUT_S
    )
    table = read_table(bootstrap, topic, columns=["value"], value="json")
    assert table.to_pydict() == COLUMNS


@pytest.mark.parametrize("name", ["int", "int with null", "float", "bool", "list"])
def test_a_column_that_is_named_as_the_value_comes_back_as_value(
    producer: Producer, bootstrap: str, topic: str, name: str
) -> None:
    sent = pa.table({"k": KEYS, name: COLUMNS[name]})
    producer.send_table(topic, sent, key="k", value=name, partition=0).result(TIMEOUT_S)
    table = read_table(bootstrap, topic, columns=["value"], value="json")
    assert table.to_pydict() == {"value": COLUMNS[name]}


def test_a_column_of_bytes_alone_or_of_text_that_is_named_is_taken_as_it_is(
    producer: Producer, bootstrap: str, topic: str
) -> None:
    one = pa.table({"k": ["1"], "v": [b"\xff"]})
    producer.send_table(topic, one, key="k", partition=0).result(TIMEOUT_S)
    other = pa.table({"k": ["1"], "v": ["text"]})
    producer.send_table(topic, other, key="k", value="v", partition=0).result(TIMEOUT_S)
    assert read_table(bootstrap, topic)["value"].to_pylist() == [b"\xff", b"text"]


def test_a_table_without_a_column_for_the_value_writes_records_without_values(
    producer: Producer, bootstrap: str, topic: str
) -> None:
    producer.send_table(topic, pa.table({"k": KEYS}), key="k", partition=0).result(TIMEOUT_S)
    assert read_table(bootstrap, topic)["value"].to_pylist() == [None] * 3
    table = read_table(bootstrap, topic, columns=["key", "value"], value="json")
    assert table.to_pydict() == {"key": [b"1", b"2", b"3"]}
    with pytest.raises(UserError, match="The table has no column left for the value"):
        producer.send_table(topic, pa.table({}))


def test_a_table_without_rows_writes_nothing(
    producer: Producer, bootstrap: str, topic: str
) -> None:
    empty = pa.table({"k": pa.array([], pa.string()), "n": pa.array([], pa.int64())})
    producer.send_table(topic, empty, key="k").result(TIMEOUT_S)
    assert read_table(bootstrap, topic, value="json").num_rows == 0
