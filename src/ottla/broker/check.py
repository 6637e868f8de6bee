"""The checks of `ottla broker --check`: everything that could prevent a start, without starting.

Nothing on disk is changed, ZooKeeper is not contacted, and ports are released at once. A running
broker holds its port and its data directories, so checking its configuration reports both."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.base.config.broker import BrokerConfig
from ottla.base.config.broker_sasl_table import OAUTHBEARER, PLAIN
from ottla.base.config.listener import Listener
from ottla.base.config.sasl_settings import SaslSettings
from ottla.base.config.tls_settings import TlsSettings
from ottla.base.errors import UserError
from ottla.base.metadata import Node
from ottla.base.types import TopicPartition
from ottla.broker.adoption import (
    directory_owner,
    metadata_directories,
    protection_problem,
    with_node_id,
)
from ottla.broker.authorization import warnings
from ottla.broker.broker import METADATA_DIRECTORY
from ottla.broker.data_lock import LOCK_FILE
from ottla.broker.jwks import check_keys
from ottla.broker.kraft_log import read_kraft_metadata
from ottla.broker.listening import bind_listener
from ottla.broker.tls_contexts import EXPIRY_WARNING_S, TlsContexts
from ottla.metadata import tree
from ottla.metadata.journal import LOG_NAME, SNAPSHOT_NAME, Journal
from ottla.metadata.zookeeper.store import parse_connect
from ottla.net.tls import client_context
from ottla.storage.file import OsFileSystem
from ottla.storage.log_dirs import LogDirectory

MAX_OPEN_FILES = 64
_GIB = 1024**3


class Finding(NamedTuple):
    """One result of a check."""

    level: int
    """logging.INFO if all is well, WARNING, or ERROR if the broker would not start."""
    text: str


def check(config: BrokerConfig) -> Iterator[Finding]:
    """Check the directories, ports and cluster settings of a broker.

    Args:
        config: The configuration to check.

    Yields:
        One finding per check, good or bad.
    """
    for path in config.log_dirs:
        yield _check_directory(path, config.log_segment_bytes)
    directories = [
        LogDirectory(OsFileSystem(MAX_OPEN_FILES), path)
        for path in config.log_dirs
        if os.path.isdir(path) and os.access(path, os.R_OK | os.X_OK)
    ]
    yield from _check_owners(config, directories)
    yield from _check_protection(config, directories)
    yield from _check_partitions(directories)
    for listener in config.listeners:
        yield _check_port(listener)
        if listener.name in config.tls_settings:
            yield _check_tls(listener, config.tls_settings[listener.name])
        if listener.name in config.sasl_settings:
            yield _check_sasl(listener, config)
            yield from _check_oauthbearer(listener, config.sasl_settings[listener.name])
    for advertised in config.advertised_listeners:
        yield from _check_advertised(advertised)
    if config.authorizer_class_name:
        yield from _check_authorizer(config)
    if config.zookeeper_connect:
        yield _check_zookeeper(config.zookeeper_connect)
        yield from _check_zookeeper_tls(config.zookeeper_security.tls)


# ------------------------------------------------------------------------------------- directories


def _check_directory(path: str, segment_bytes: int) -> Finding:
    name = f"data directory {path}"
    if os.path.isdir(path):
        existing = path
    elif os.path.lexists(path):
        return Finding(logging.ERROR, f"{name}: is not a directory")
    else:
        existing = _nearest_existing(path)
    if not os.path.isdir(existing) or not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        return Finding(logging.ERROR, f"{name}: {existing} cannot be written to")
    if existing == path and _is_locked(path):
        return Finding(logging.ERROR, f"{name}: is in use by another broker")
    free = shutil.disk_usage(existing).free
    state = "exists" if existing == path else "will be created"
    text = f"{name}: {state}, {free / _GIB:.1f} GiB free"
    if free < segment_bytes:
        return Finding(logging.WARNING, f"{text}, less than one segment (log.segment.bytes)")
    return Finding(logging.INFO, text)


def _nearest_existing(path: str) -> str:
    parent = os.path.abspath(path)
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    return parent


def _is_locked(path: str) -> bool:
    try:
        fd = os.open(f"{path}/{LOCK_FILE}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _check_owners(config: BrokerConfig, directories: list[LogDirectory]) -> Iterator[Finding]:
    """Compare cluster.id and node.id in meta.properties, the metadata and the configuration."""
    try:
        owner = directory_owner(directories)
        node_id = with_node_id(config, owner).node_id
        cluster_id = None if owner is None else owner.cluster_id
        if not config.zookeeper_connect and directories:
            node = _stored_nodes(directories[0].path).get(tree.CLUSTER)
            cluster_id = cluster_id if node is None else tree.decode(node)["cluster_id"]
    except UserError as error:
        yield Finding(logging.ERROR, str(error))
        return
    if owner is None or cluster_id is None:
        yield Finding(
            logging.INFO, f"node.id {node_id}: no data directory belongs to a cluster yet"
        )
        return
    mismatches = 0
    for directory in directories:
        try:
            directory.checked_owner(cluster_id, node_id)
        except UserError as error:
            mismatches += 1
            yield Finding(logging.ERROR, str(error))
    if not mismatches:
        yield Finding(logging.INFO, f"node.id {node_id} of the cluster {cluster_id}")


def _check_protection(config: BrokerConfig, directories: list[LogDirectory]) -> Iterator[Finding]:
    """Look for ACLs and quotas that would be lost if the broker took over the directories."""
    if config.zookeeper_connect or not directories:
        return
    try:
        nodes = _stored_nodes(directories[0].path)
    except UserError:
        return  # reported with the owner of the directories
    if tree.CONTROLLER_EPOCH not in nodes:
        kraft = read_kraft_metadata(OsFileSystem(MAX_OPEN_FILES), metadata_directories(config))
        problem = protection_problem(kraft, config)
        if problem is not None:
            yield Finding(logging.ERROR, problem)


def _stored_nodes(home: str) -> dict[str, Node]:
    """Return a standalone broker's metadata.

    Opening a journal repairs it, so this opens a copy. Raises UserError if it is damaged."""
    stored = f"{home}/{METADATA_DIRECTORY}"
    with tempfile.TemporaryDirectory(prefix="ottla-check-") as copy:
        for name in (LOG_NAME, SNAPSHOT_NAME):
            if os.path.exists(f"{stored}/{name}"):
                shutil.copyfile(f"{stored}/{name}", f"{copy}/{name}")
        journal = Journal(OsFileSystem(MAX_OPEN_FILES), copy)
        try:
            return journal.open()
        except UserError as error:
            raise UserError(str(error).replace(copy, stored)) from None
        finally:
            journal.close()


def _check_partitions(directories: Iterable[LogDirectory]) -> Iterator[Finding]:
    found: dict[TopicPartition, str] = {}
    for directory in directories:
        for log in directory.find_logs():
            other = found.setdefault(log.partition, log.path)
            if other != log.path:
                text = f"{log.partition} is in {other} and in {log.path}; move one of them away"
                yield Finding(logging.ERROR, text)


# ------------------------------------------------------------------------------------------ network


def _check_port(listener: Listener) -> Finding:
    try:
        for sock in asyncio.run(bind_listener(listener.host, listener.port, 0, 0)):
            sock.close()
    except UserError as error:
        return Finding(logging.ERROR, str(error))
    return Finding(logging.INFO, f"listener {listener}: the port is free")


def _check_tls(listener: Listener, settings: TlsSettings) -> Finding:
    try:
        contexts = TlsContexts({listener.name: settings})
    except UserError as error:
        return Finding(logging.ERROR, f"listener {listener}: {error}")
    expires_at = contexts.certificate(listener.name).expires_at
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(expires_at))
    text = f"listener {listener}: TLS with a certificate that is valid until {when}"
    is_soon = expires_at < time.time() + EXPIRY_WARNING_S
    return Finding(logging.WARNING if is_soon else logging.INFO, text)


def _check_sasl(listener: Listener, config: BrokerConfig) -> Finding:
    names = config.sasl_settings[listener.name].names
    text = f"listener {listener}: SASL with {', '.join(names)}"
    exposed = [
        f"{secret} for {name}"
        for name, secret in ((PLAIN, "passwords"), (OAUTHBEARER, "tokens"))
        if name in names
    ]
    if exposed and listener.name not in config.tls_settings:
        text += f"; clients send {' and '.join(exposed)} without encryption, which SASL_SSL adds"
        return Finding(logging.WARNING, text)
    return Finding(logging.INFO, text)


def _check_oauthbearer(listener: Listener, sasl: SaslSettings) -> Iterator[Finding]:
    for mechanism in sasl.mechanisms:
        settings = mechanism.oauthbearer
        if settings is None:
            continue
        where = f"listener {listener}"
        try:
            count = check_keys(settings)
        except UserError as error:
            # A broker starts without the keys of an endpoint, and gets them later.
            level = logging.WARNING if settings.jwks_file is None else logging.ERROR
            yield Finding(level, f"{where}: {error}")
        else:
            yield Finding(
                logging.INFO, f"{where}: {count} keys for tokens from {settings.jwks_endpoint_url}"
            )


def _check_authorizer(config: BrokerConfig) -> Iterator[Finding]:
    users = config.super_users or "none"
    yield Finding(logging.INFO, f"authorizer: ACLs apply to every request; super users: {users}")
    for each in warnings(config):
        yield Finding(logging.WARNING, f"authorizer: {each}")


def _check_advertised(listener: Listener) -> Iterator[Finding]:
    try:
        socket.getaddrinfo(listener.host, None)
    except (OSError, UnicodeError):
        yield Finding(
            logging.WARNING,
            f"advertised listener {listener}: {listener.host} does not resolve on this machine",
        )


def _check_zookeeper_tls(settings: TlsSettings | None) -> Iterator[Finding]:
    if settings is not None:
        try:
            client_context(settings)
        except UserError as error:
            yield Finding(logging.ERROR, str(error))


def _check_zookeeper(connect: str) -> Finding:
    try:
        servers, root = parse_connect(connect)
    except UserError as error:
        return Finding(logging.ERROR, str(error))
    names = ", ".join(f"{host}:{port}" for host, port in servers)
    return Finding(logging.INFO, f"ZooKeeper {names}, root {root or '/'} (not contacted)")
