"""Tests of the types of keyword arguments, for editors and type checkers."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from codegen import client_properties
from tests.type_errors import check_type_errors

from ottla import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    Producer,
    read_batches,
    read_table,
)
from ottla.client import properties
from ottla.client.admin.config import AdminConfig
from ottla.client.config import CommonConfig
from ottla.client.consumer.config import ConsumerConfig
from ottla.client.producer.config import ProducerConfig

ROOT = Path(__file__).parents[3]

SNIPPET = """
from typing import Unpack

from ottla import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer, read_table
from ottla import RebalanceListener, TopicPartition
from ottla.client.properties import ConsumerProperties
from ottla.spark import table

Producer("a:1", linger_ms=5, acks=1, compression_type="zstd", bootstrap_servers=["a:1"])
Producer("a:1", linger_millis=5)  # error: call-arg
AsyncProducer("a:1", linger_ms=[5])  # error: arg-type
Consumer("a:1", group_id="g", enable_auto_commit=False, listener=RebalanceListener())
Consumer("a:1", linger_ms=5)  # error: call-arg
Consumer("a:1", listener="listener")  # error: arg-type
AsyncConsumer("a:1", fetch_max_bytes="5", auto_offset_rest="earliest")  # error: call-arg
Admin("a:1", client_id="me")
AsyncAdmin("a:1", client_di="me")  # error: call-arg
read_table("a:1", "orders", fetch_max_byte=1)  # error: call-arg
table("orders", starting_offsets="latest", kafka_isolation_level="read_committed")
table("orders", starting_offset="latest")  # error: call-arg


def connect(**properties: Unpack[ConsumerProperties]) -> Consumer:
    return Consumer("a:1", **properties)


with connect(group_id="g") as consumer:
    consumer.commit(timeout_s=1)
    consumer.commit(timeout_ms=1)  # error: call-arg
    lag: str = consumer.lag(TopicPartition("orders", 0))  # error: assignment
"""


@pytest.mark.parametrize(
    ("module", "render"),
    [
        (client_properties.CLIENT_MODULE, client_properties.render_client_properties),
        (client_properties.SPARK_MODULE, client_properties.render_spark_options),
    ],
)
def test_the_generated_modules_are_those_of_today(module: Path, render: Callable[[], str]) -> None:
    formatted = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "-", "--stdin-filename", module],
        input=render(), capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    assert module.read_text(encoding="utf-8") == formatted.stdout, "run: make codegen"


@pytest.mark.parametrize("config", [AdminConfig, CommonConfig, ConsumerConfig, ProducerConfig])
def test_every_property_is_a_keyword(config: type[CommonConfig]) -> None:
    keywords = getattr(properties, config.__name__.replace("Config", "Properties"))
    assert get_type_hints(keywords).keys() == {field.name for field in dataclasses.fields(config)}


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (Admin, "Admin"), (AsyncAdmin, "Admin"), (Consumer, "Consumer"),
        (AsyncConsumer, "Consumer"), (read_table, "Consumer"), (read_batches, "Consumer"),
        (Producer, "Producer"), (AsyncProducer, "Producer"),
    ],
)  # fmt: skip
def test_the_keywords_of_a_client_are_typed(function: Callable[..., Any], kind: str) -> None:
    parameters = inspect.signature(function).parameters
    assert parameters["properties"].annotation == f"Unpack[{kind}Properties]"


def test_a_type_checker_reports_keywords_that_do_not_exist(tmp_path: Path) -> None:
    check_type_errors(SNIPPET, tmp_path)


def test_options_of_the_spark_source_are_keywords_in_snake_case() -> None:
    from ottla.spark.options import SOURCE_OPTIONS, from_keywords, keyword_names

    names = keyword_names()
    assert set(names.values()) >= set(SOURCE_OPTIONS) - {
        "subscribe", "subscribePattern", "assign", "profile",
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        options = from_keywords({
            "starting_offsets": "latest", "kafka_isolation_level": "read_committed",
            "failOnDataLoss": False, "kafka.client.id": "me",
        })  # fmt: skip
    assert options == {
        "startingOffsets": "latest",
        "kafka.isolation.level": "read_committed",
        "failOnDataLoss": "False",
        "kafka.client.id": "me",
    }


def test_two_underscores_for_a_dot_are_deprecated() -> None:
    from ottla.spark.options import from_keywords

    with pytest.warns(DeprecationWarning, match="kafka_client_id="):
        assert from_keywords({"kafka__client__id": "me"}) == {"kafka.client.id": "me"}
