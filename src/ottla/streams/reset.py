"""Reset of an application, for `app.reset()` and `kafka-streams-application-reset`.

    groups     Offsets of input topics are deleted or set. Topics that the application both
               writes and reads are skipped to the end: their records are old results.
    topics     Internal topics are deleted: the application's own, and those with names as in Kafka
               Streams (APP-…-changelog, APP-…-repartition).
    files      Checkpoints with their state, and stores, are deleted.

Offsets come first and files last. Until the checkpoints are gone, an interrupted reset has changed
nothing that the application would notice, and can be repeated. A query without a checkpoint starts
from offsets that were set for its group (`resumeFrom=reset` in `ottla.spark`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.streams.application import Application
from ottla.streams.checkpoint import (
    LOCK,
    STORE,
    TOPOLOGY,
    AppLock,
    FileSystem,
    LocalFiles,
    app_directory,
    files_of_session,
    is_remote,
    local_directory,
)
from ottla.streams.internal_topics import internal_topics_of
from ottla.streams.operators.topics import BadRecords, Sink, Source
from ottla.streams.plan.node import ancestors

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.streams.store import Stores


def reset(app: Application, stores: Stores) -> None:
    from ottla.client.admin import Admin
    from ottla.streams.running import Running

    sinks = app.require_sinks()
    Running.stop_idle(app)
    lock = AppLock(app.state_dir, app.name)
    lock.acquire()
    try:
        files = _files(app)
        files.names(app_directory(app.state_dir, app.name))  # refuse before anything is changed
        stores.close()
        with Admin(app.bootstrap, profile=app.client) as admin:
            groups = {app.group_of(sink): sink for sink in sinks}
            delete_groups(admin, groups)
            topics = admin.list_topics()
            internal = internal_topics_of(app.name, topics)
            internal += [each.topic for each in sinks if each.is_internal and each.topic in topics]
            for group, sink in groups.items():
                again = [each for each in _topics_read_again(sinks, sink) if each not in internal]
                skip_to_end(admin, group, again)
            delete_topics(admin, internal)
        delete_files(app.state_dir, app.name, files)
    finally:
        lock.release()


def _files(app: Application) -> FileSystem:
    from ottla.streams.run import session_for, uses_connect

    if not is_remote(app.state_dir) and not uses_connect(app):
        return LocalFiles()
    return files_of_session(app.state_dir, session_for(app))


def _topics_read_again(sinks: Sequence[Sink], sink: Sink) -> list[str]:
    written = {each.topic for each in sinks}
    read = set()
    for node in ancestors(sink):
        if isinstance(node, Source) and not node.is_table:
            read.add(node.topic)
        elif isinstance(node, BadRecords):
            read.add(node.source.topic)
    return sorted(read & written)


# ------------------------------------------------------------------------------------ the brokers


def delete_groups(admin: Admin, groups: Iterable[str]) -> None:
    """Delete groups and their committed offsets. Raises KafkaError if a group has members."""
    done = admin.delete_groups(*groups, return_errors=True)
    for error in done.errors.values():
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise error


def skip_to_end(admin: Admin, group: str, topics: Sequence[str]) -> None:
    """Set the offsets of a group to the end of topics."""
    ends = end_offsets(admin, topics)
    if ends:
        admin.alter_group_offsets(group, ends)


def end_offsets(admin: Admin, topics: Sequence[str]) -> dict[TopicPartition, int]:
    from ottla.client.admin import OffsetSpec

    if not topics:
        return {}
    described = admin.describe_topics(*topics, return_errors=True)  # a topic may not exist yet
    partitions = [
        TopicPartition(topic, each.partition)
        for topic, description in described.items()
        for each in description.partitions
    ]
    listed = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST)) if partitions else {}
    return {tp: each.offset or 0 for tp, each in listed.items()}


def delete_topics(admin: Admin, topics: Sequence[str]) -> None:
    if topics:
        admin.delete_topics(*topics)


# -------------------------------------------------------------------------------------- the files


def sink_topics(state_dir: str, app_name: str, files: FileSystem) -> list[str]:
    """Return the topics whose queries have a recorded topology."""
    names = files.names(app_directory(state_dir, app_name))
    return [name.removesuffix(TOPOLOGY) for name in names if name.endswith(TOPOLOGY)]


def files_of(state_dir: str, app_name: str, files: FileSystem) -> list[str]:
    """Return the paths of all files except the lock."""
    directory = app_directory(state_dir, app_name)
    found = [f"{directory}/{name}" for name in files.names(directory) if name != LOCK]
    if is_remote(state_dir):
        found += map(str, _local_stores(state_dir, app_name))
    return found


def delete_files(state_dir: str, app_name: str, files: FileSystem) -> None:
    for path in files_of(state_dir, app_name, files):
        (files if path.startswith(state_dir) else LocalFiles()).delete(path)


def _local_stores(state_dir: str, app_name: str) -> list[Path]:
    """Return the local stores of an application whose checkpoints are remote."""
    local = local_directory(state_dir, app_name)
    return [local / name for name in LocalFiles().names(str(local)) if _is_store_file(name)]


def _is_store_file(name: str) -> bool:
    return re.search(rf"{re.escape(STORE)}(?:-wal|-shm|-journal)?$", name) is not None
