"""Preparation of data directories and first users, before a broker starts.

    format_storage    the owner of each data directory; the cluster ID and users in the metadata
    store_users       users in the metadata only

The metadata is that of the configuration: the embedded store in the first data directory, or
ZooKeeper. A broker that starts later finds the users before it opens a listener. The embedded store
belongs to one process, so these functions lock the data directories and fail while a broker runs.
ZooKeeper can be written to at any time; running brokers see the change at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from ottla.base.config.broker import BrokerConfig
from ottla.base.errors import UserError
from ottla.base.metadata import Create, MetadataStore, Op, TxnConflict
from ottla.base.scram import ScramCredential, ScramMechanism
from ottla.base.types import parse_uuid
from ottla.broker.adoption import directory_owner, with_node_id
from ottla.broker.broker import METADATA_DIRECTORY
from ottla.broker.data_lock import DataLock
from ottla.broker.zookeeper import open_zookeeper
from ottla.metadata import tree
from ottla.metadata.embedded import EmbeddedStore
from ottla.storage.file import OsFileSystem
from ottla.storage.log_dirs import META_PROPERTIES, DirectoryOwner, LogDirectory

MAX_OPEN_FILES = 16
MAX_TRIES = 10
RETRY_S = 0.1

Users = Mapping[str, Mapping[ScramMechanism, ScramCredential]]


@dataclass(slots=True)
class Formatted:
    """Result of `format_storage`."""

    directories: list[str] = field(default_factory=list)
    """The data directories that were formatted."""
    users: list[str] = field(default_factory=list)
    """The users that were added."""


async def store_users(config: BrokerConfig, users: Users, *, replace: bool = True) -> list[str]:
    """Store users in the metadata of a broker that does not run, or in ZooKeeper.

    Args:
        config: The broker's configuration.
        users: The credentials of each user. A user without any is deleted.
        replace: Replace the credentials of users that exist; otherwise leave these users unchanged.

    Returns:
        The users that were stored.

    Raises:
        UserError: A broker uses the data directories, they are damaged, or ZooKeeper cannot be
            reached.
    """
    if config.zookeeper_connect:
        async with _opened_store(config) as store:
            return await _store_users(store, users, replace=replace)
    async with _locked(config), _opened_store(config) as store:
        return await _store_users(store, users, replace=replace)


async def format_storage(
    config: BrokerConfig, cluster_id: str, users: Users, *, ignore_formatted: bool = False
) -> Formatted:
    """Format the data directories of a broker for a cluster, and add users to its metadata.

    Users that exist are left unchanged, so the directories of every broker of a cluster can be
    formatted with the same users. Nothing is changed if all directories are formatted already. An
    embedded store is in the first directory, so users are added only when that one is formatted.

    Args:
        config: The broker's configuration.
        cluster_id: The ID of the cluster.
        users: The credentials of the first users.
        ignore_formatted: Skip directories that are formatted already, instead of failing.

    Raises:
        UserError: The cluster ID is not valid, a directory is formatted already, a broker uses it,
            or the metadata belongs to another cluster.
    """
    _check_cluster_id(cluster_id)
    async with _locked(config):
        directories = _directories(config)
        unformatted = await asyncio.to_thread(_unformatted, directories, ignore_formatted)
        if not unformatted:
            return Formatted()
        node_id = with_node_id(config, directory_owner(directories)).node_id
        for directory in directories:
            directory.checked_owner(cluster_id, node_id)
        formatted = Formatted()
        home_is_new = directories[0] in unformatted
        if config.zookeeper_connect or home_is_new:
            async with _opened_store(config) as store:
                await _claim_metadata(store, cluster_id)
                formatted.users = await _store_users(store, users, replace=False)
        # Last, so that formatting is repeated if it was interrupted before.
        for directory in unformatted:
            await asyncio.to_thread(directory.claim, cluster_id, node_id)
            formatted.directories.append(directory.path)
        return formatted


def formatted_directories(config: BrokerConfig) -> dict[str, DirectoryOwner | None]:
    """Return the owner of each data directory, or None for one that is not formatted.

    Raises:
        UserError: The meta.properties of a directory is incomplete.
    """
    return {
        each.path: each.owner() if each.fs.is_directory(each.path) else None
        for each in _directories(config)
    }


def _check_cluster_id(cluster_id: str) -> None:
    try:
        parse_uuid(cluster_id)
    except ValueError:
        raise UserError(
            f"The cluster ID {cluster_id!r} is not a UUID in base64. Create one with: "
            "kafka-storage random-uuid"
        ) from None


def _directories(config: BrokerConfig) -> list[LogDirectory]:
    fs = OsFileSystem(MAX_OPEN_FILES)
    return [LogDirectory(fs, path) for path in config.log_dirs]


def _unformatted(directories: Sequence[LogDirectory], ignore_formatted: bool) -> list[LogDirectory]:
    found = []
    for directory in directories:
        if not directory.fs.exists(f"{directory.path}/{META_PROPERTIES}"):
            found.append(directory)
        elif not ignore_formatted:
            raise UserError(
                f"Log directory {directory.path} is already formatted. Use --ignore-formatted to "
                "ignore this directory and format the others."
            )
    return found


async def _claim_metadata(store: MetadataStore, cluster_id: str) -> None:
    """Store the cluster ID, or check that it is the one that is stored."""
    for _ in range(MAX_TRIES):
        nodes, _ = await store.load(tree.CLUSTER)
        node = nodes.get(tree.CLUSTER)
        if node is not None:
            existing = tree.decode(node)["cluster_id"]
            if existing != cluster_id:
                raise UserError(
                    f"The metadata belongs to the cluster {existing}, not {cluster_id}. Format "
                    f"with --cluster-id {existing}, or correct log.dirs or zookeeper.connect."
                )
            return
        value = tree.encode({"cluster_id": cluster_id})
        try:
            await store.txn([], [Create(tree.CLUSTER, value)])
        except TxnConflict:  # another broker of the cluster is being formatted
            await asyncio.sleep(RETRY_S)
        else:
            return
    raise _too_many_conflicts()


async def _store_users(store: MetadataStore, users: Users, *, replace: bool) -> list[str]:
    for _ in range(MAX_TRIES):
        nodes, _ = await store.load(tree.SCRAM)
        existing = {tree.user_of_path(path) for path in nodes}
        new = {user: each for user, each in users.items() if replace or user not in existing}
        ops: list[Op] = tree.scram_ops({user: {} for user in existing}, new)
        if not ops:
            return []
        try:
            await store.txn([], ops)
        except TxnConflict:  # somebody else changes the same users
            await asyncio.sleep(RETRY_S)
        else:
            return [tree.user_of_path(op.path) for op in ops]
    raise _too_many_conflicts()


def _too_many_conflicts() -> UserError:
    return UserError("Another process changes the metadata at the same time. Try again.")


@asynccontextmanager
async def _locked(config: BrokerConfig) -> AsyncIterator[None]:
    lock = DataLock()
    try:
        await asyncio.to_thread(lock.acquire, config.log_dirs)
        yield
    finally:
        lock.release()


@asynccontextmanager
async def _opened_store(config: BrokerConfig) -> AsyncIterator[MetadataStore]:
    store: MetadataStore
    if config.zookeeper_connect:
        store = await open_zookeeper(config)
    else:
        home = f"{config.log_dirs[0].rstrip('/')}/{METADATA_DIRECTORY}"
        store = await EmbeddedStore.open(OsFileSystem(MAX_OPEN_FILES), home, asyncio.to_thread)
    try:
        yield store
    finally:
        await store.close()
