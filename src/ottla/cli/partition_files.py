"""JSON files of `kafka-reassign-partitions`, `kafka-leader-election` and `kafka-delete-records`.

{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}
{"version": 1, "topics": [{"topic": "t"}]}
{"partitions": [{"topic": "t", "partition": 0}]}
{"partitions": [{"topic": "t", "partition": 0, "offset": 5}], "version": 1}"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ottla.base.errors import UserError
from ottla.base.types import TopicPartition


def read_assignment(path: str) -> dict[TopicPartition, tuple[int, ...]]:
    found: dict[TopicPartition, tuple[int, ...]] = {}
    for each in _list(path, "partitions"):
        match each:
            case {"topic": str(topic), "partition": int(partition), "replicas": [*replicas]}:
                key = TopicPartition(topic, partition)
            case _:
                raise UserError(
                    f'{path} must look like {{"version": 1, "partitions": [{{"topic": "t", '
                    '"partition": 0, "replicas": [1, 2]}]}.'
                )
        if key in found:
            raise UserError(f"{path} lists partition {key} twice.")
        if not replicas or not all(isinstance(id, int) for id in replicas):
            raise UserError(f"{path}: the replicas of partition {key} must be broker IDs.")
        if len(set(replicas)) < len(replicas):
            raise UserError(f"{path}: the replicas of partition {key} repeat a broker: {replicas}.")
        if any(directory != "any" for directory in each.get("log_dirs", ())):
            raise UserError(
                f"{path}: partition {key} names log directories, which Ottla cannot assign. "
                'Use "any" or leave out log_dirs.'
            )
        found[key] = tuple(replicas)
    return found


def read_topics(path: str) -> list[str]:
    topics = [each.get("topic") for each in _list(path, "topics") if isinstance(each, dict)]
    if not topics or not all(isinstance(topic, str) for topic in topics):
        raise UserError(f'{path} must look like {{"version": 1, "topics": [{{"topic": "t"}}]}}.')
    return list(dict.fromkeys(map(str, topics)))


def read_partitions(path: str) -> list[TopicPartition]:
    found = []
    for each in _list(path, "partitions"):
        match each:
            case {"topic": str(topic), "partition": int(partition)}:
                found.append(TopicPartition(topic, partition))
            case _:
                raise UserError(
                    f'{path} must look like {{"partitions": [{{"topic": "t", "partition": 0}}]}}.'
                )
    return found


def read_offsets(path: str) -> dict[TopicPartition, int]:
    content = _read(path)
    wrong = UserError(
        f'{path} must look like {{"partitions": [{{"topic": "t", "partition": 0, "offset": 5}}], '
        '"version": 1}.'
    )
    if not isinstance(content, dict) or not isinstance(content.get("partitions"), list):
        raise wrong
    _check_version(content, path)
    found: dict[TopicPartition, int] = {}
    for each in content["partitions"]:
        match each:
            case {"topic": str(topic), "partition": int(partition), "offset": int(offset)}:
                key = TopicPartition(topic, partition)
            case _:
                raise wrong
        if key in found:
            raise UserError(f"{path} lists partition {key} twice.")
        found[key] = offset
    return found


def as_json(assignment: Mapping[TopicPartition, tuple[int, ...]]) -> str:
    partitions = [
        {"topic": key.topic, "partition": key.partition, "replicas": list(replicas)}
        for key, replicas in assignment.items()
    ]
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))


def _list(path: str, name: str) -> list[Any]:
    content = _read(path)
    found = content.get(name) if isinstance(content, dict) else None
    if not isinstance(found, list) or not found:
        raise UserError(f'{path} has no "{name}" list, or the list is empty.')
    _check_version(content, path)
    return found


def _read(path: str) -> Any:
    try:
        with open(path, "rb") as file:
            return json.load(file)
    except OSError as error:
        raise UserError(f"Cannot read {path}: {(error.strerror or '').lower()}.") from error
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON: {error}.") from error


def _check_version(content: Mapping[str, Any], path: str) -> None:
    if content.get("version", 1) != 1:
        raise UserError(f"{path} has version {content['version']}. Only version 1 is supported.")
