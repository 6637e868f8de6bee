"""The broker: the components of one process, and its reaction to metadata changes.

    start: lock and read the data directories -> metadata store -> open the logs -> listen ->
           register -> background work
    stop:  hand over leaderships -> stop accepting connections -> answer the requests in progress ->
           close every log -> mark the directories clean

Every step of a stop that depends on another process has a time limit: the handover has
`controlled.shutdown.timeout.ms`, the others have seconds. Only disk writes may take as long as they
need.

It only connects the components: `core` decides, `storage` keeps the data, `metadata` agrees with
the other brokers. The components and handlers do not know this class. Each declares the few parts
of it that it uses as a protocol (ports.py)."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from ottla.base.cluster import TopicImage
from ottla.base.config.broker import BrokerConfig
from ottla.base.config.topic import TopicConfig, topic_config
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.metadata import MetadataStore
from ottla.base.ports import Clock, FileSystem
from ottla.base.types import TopicPartition
from ottla.broker.adoption import (
    Adoption,
    adopt,
    directory_owner,
    protection_ops,
    with_node_id,
)
from ottla.broker.authentication import SaslListeners
from ottla.broker.authorization import Authorization, warnings
from ottla.broker.cluster import SHUTDOWN_WRITE_TIMEOUT_S, Cluster
from ottla.broker.controller import Controller
from ottla.broker.coordinator import Coordinator
from ottla.broker.data_lock import DataLock, Lock
from ottla.broker.delegation_tokens import DelegationTokens
from ottla.broker.features import FEATURES, Features
from ottla.broker.flusher import Flusher
from ottla.broker.group_coordinator import OFFSETS_TOPIC, GroupCoordinator
from ottla.broker.housekeeping import Housekeeping
from ottla.broker.listening import BindListener, bind_listener
from ottla.broker.log_limit import LogLimiter
from ottla.broker.logs import Logs, WantedLog
from ottla.broker.partition import Partition
from ottla.broker.peer_login import PeerLogin
from ottla.broker.produce_fast_path import ProduceFastPath
from ottla.broker.producer_ids import ProducerIds
from ottla.broker.quotas import ClientQuotas
from ottla.broker.registration import ensure_cluster_id, join_cluster
from ottla.broker.replication import Replication
from ottla.broker.router import Router
from ottla.broker.server import Listener, Server, ServerConfig
from ottla.broker.tls_contexts import TlsContexts
from ottla.broker.token_verifier import TokenVerifiers
from ottla.broker.transaction_coordinator import TRANSACTION_TOPIC, TransactionCoordinator
from ottla.broker.zookeeper import open_zookeeper
from ottla.core.fetch_session import FetchSessionCache
from ottla.core.produce import needs_records
from ottla.core.security.peers import PeerRule, parse_principals
from ottla.metadata.embedded import EmbeddedStore
from ottla.metadata.follower import ImageFollower
from ottla.metadata.image import NO_CONTROLLER_EPOCH, AccessDelta, ClusterImage, ImageDelta
from ottla.net.connection import Authenticate
from ottla.net.errors import ConnectionLost
from ottla.storage.log import Log

logger = logging.getLogger(__name__)
T = TypeVar("T")

METADATA_DIRECTORY = "ottla-metadata"
STOP_GRACE_S = 5.0
OPEN_CHUNK = 500
"""Number of logs opened in one call to a thread."""


class Broker:
    """A broker: listeners, logs, coordinators and, in a cluster, replication."""

    def __init__(
        self,
        config: BrokerConfig,
        fs: FileSystem,
        clock: Clock,
        *,
        bind: BindListener = bind_listener,
        lock: Lock | None = None,
    ) -> None:
        """Create a broker; `start` starts it.

        Args:
            config: The static configuration.
            fs: Access to the data directories.
            clock: Source of wall-clock and monotonic time.
            bind: Binds a listener; simulations pass their own network.
            lock: Locks the data directories; simulations pass their own lock.
        """
        self._bind = bind
        self.config = config
        self.fs = fs
        self.clock = clock
        self.node_id = config.node_id
        self.cluster_id = ""
        self.image = ClusterImage()
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.partitions_version: object = object()
        """Replaced by a new object whenever a partition is opened, removed or reconfigured, or its
        leader or leader epoch changes. Fetch sessions and produce_fast_path.py compare its
        identity."""
        self.topics_needing_records: set[str] = set()
        """Topics whose batches are decoded and checked before they are appended
        (core/produce.py)."""
        self.fetch_sessions: FetchSessionCache[Partition] = FetchSessionCache(
            config.max_incremental_fetch_session_cache_slots, random.randrange(1, 2**31)
        )
        self._static_config = config
        self._executor = ThreadPoolExecutor(
            max_workers=config.background_threads, thread_name_prefix="ottla"
        )
        self.flusher = Flusher(clock, self.run_blocking)
        self.logs = Logs(fs, config.log_dirs, clock, self.run_blocking)
        self.flusher.on_sync_error = self._sync_failed
        self.housekeeping = Housekeeping(self)
        self.group_coordinator = GroupCoordinator(self)
        self.transaction_coordinator = TransactionCoordinator(self)
        self.client_log = LogLimiter(logger, clock.monotonic)
        """Rate-limited log for client behaviour that an operator should know about."""
        self.authorization: Authorization | None = None
        """The authorizer, or None if clients may do everything."""
        if config.authorizer_class_name:
            self.authorization = Authorization(config, clock.time_ms)
        self.quotas = ClientQuotas(config, clock.monotonic)
        """The client quotas, and how much of them is used."""
        self.peer_rule = PeerRule(config.inter_broker_listener, authenticates=True)
        """Decides which connections are those of other brokers."""
        self._lock: Lock = DataLock() if lock is None else lock
        self._tasks: set[asyncio.Task[Any]] = set()
        self._server: Server | None = None
        self._tls: TlsContexts | None = None
        self._sasl = SaslListeners(self, config)
        self.token_verifiers = TokenVerifiers(self)
        self.delegation_tokens = DelegationTokens(self)
        self._peer_login = PeerLogin()
        self._has_joined = False
        self._opening = asyncio.Lock()
        self.store: MetadataStore
        self.cluster: Cluster | None = None
        """Membership in a cluster; None on a standalone broker."""
        self.controller: Controller
        self.producer_ids: ProducerIds
        self._follower: ImageFollower

    # --------------------------------------------------------------------------- start and stop

    async def start(self) -> None:
        """Start the broker. If this fails or is cancelled, everything started so far is closed.

        Raises:
            UserError: The broker cannot start; the message says why and what to do.
        """
        undo = AsyncExitStack()
        try:
            self._lock.acquire(self.config.log_dirs)
            undo.callback(self._lock.release)
            undo.callback(self.logs.close)
            undo.push_async_callback(self._stop_executor)
            await self._start(undo)
        except GeneratorExit:
            raise  # the event loop is closed: nothing can be awaited any more
        except BaseException:
            await undo.aclose()
            raise

    async def _start(self, undo: AsyncExitStack) -> None:
        """Start each component, and push how to close it on `undo` in case the start fails."""
        self.logs.begin()
        home = self.logs.directories[0]
        owner = directory_owner(self.logs.directories)
        self.config = self._static_config = with_node_id(self.config, owner)
        self.node_id = self.config.node_id
        await self._open_store(f"{home.path}/{METADATA_DIRECTORY}")
        undo.push_async_callback(self.store.close)
        self._follower = ImageFollower(self.store, self.image, self._on_delta, self._on_access)
        undo.push_async_callback(self._follower.close)
        self.controller = Controller(
            self, self._follower, cluster=self.cluster, check_settings=self._check_settings
        )
        undo.push_async_callback(self.controller.close, SHUTDOWN_WRITE_TIMEOUT_S)
        self.producer_ids = ProducerIds(self.controller.allocate_producer_ids)
        known = None if owner is None else owner.cluster_id
        zookeeper = self.config.zookeeper_connect if self.cluster is not None else None
        self.cluster_id = await ensure_cluster_id(self, known, zookeeper=zookeeper)
        for directory in self.logs.directories:
            directory.claim(self.cluster_id, self.node_id)
        delta = await self._follower.load()
        undo.push_async_callback(self.token_verifiers.close)
        self._use_dynamic_config()
        await self._open_topics(delta.topics_created)
        self._follower.follow()
        if not self.logs.was_clean:
            # Recovery may have truncated a log below its recovery point. Checkpoint the lower one
            # before new records are appended there, because the next recovery must check them.
            await self.logs.write_checkpoints()
        await self._serve(await self._adopt(), undo)
        self.logs.mark_registered()
        self.logs.rename_strays()
        self.housekeeping.start()
        self.group_coordinator.start()
        self.transaction_coordinator.start()

    async def _open_store(self, path: str) -> None:
        config = self.config
        if not config.zookeeper_connect:
            store = await EmbeddedStore.open(self.fs, path, self.run_blocking)
            store.on_write_error = lambda error: self.logs.disk_watch.write_failed(path, error)
            self.store = store
            return
        zookeeper = await open_zookeeper(config)
        self.store = zookeeper
        self.cluster = Cluster(self, zookeeper)

    async def _adopt(self) -> Adoption:
        """Return the topics that Apache Kafka, or an Ottla broker that lost its metadata, left in
        the directories. A standalone broker looks for them until its first controller epoch."""
        if self.cluster is not None or self.image.controller_epoch != NO_CONTROLLER_EPOCH:
            return Adoption()
        users = frozenset(self.image.scram)
        adoption = await self.run_blocking(
            lambda: adopt(self.fs, self.logs.found, self.config, users)
        )
        adoption.ops += protection_ops(adoption, self.image)
        return adoption

    async def _serve(self, adoption: Adoption, undo: AsyncExitStack) -> None:
        if self.config.tls_settings:
            self._tls = await self.run_blocking(lambda: TlsContexts(self.config.tls_settings))
            self._tls.report()
        await self.token_verifiers.start(self.config.oauthbearer_settings)
        self._update_peer_rule()
        for each in warnings(self.config):
            logger.warning("authorizer: %s", each)
        server = Server(
            self,
            Router(),
            _server_config(self.config),
            monotonic=self.clock.monotonic,
            produce_fast_path=lambda: ProduceFastPath(self),
            bind=self._bind,
            tls=self._tls,
            sasl=self._sasl,
            authorization=self.authorization,
            quotas=self.quotas,
        )
        await server.start()
        self._server = server
        undo.push_async_callback(server.stop, 0.0)
        if self.cluster is not None:
            undo.push_async_callback(self.cluster.abandon)
            await self.cluster.join(self._endpoints(), clean_shutdown=self.logs.has_all_writes)
            self.controller.begin()
            return
        await join_cluster(
            self,
            self.controller,
            self._follower,
            endpoints=self._endpoints(),
            clean_shutdown=self.logs.was_clean,
            found_topics=adoption.topics,
            first_ops=adoption.ops,
        )
        # Only now: joining starts new leader epochs, and a coordinator belongs to one epoch.
        self._has_joined = True
        for partition in self.partitions.values():
            self.leader_changed(partition)

    def _endpoints(self) -> dict[str, tuple[str, int]]:
        """Return the advertised listeners, with the bound port in place of port 0."""
        assert self._server is not None
        bound = self._server.ports
        return {
            listener.name: (listener.host, listener.port or bound[listener.name])
            for listener in self.config.advertised_listeners
        }

    async def stop(self) -> None:
        """Hand over leaderships, answer the requests in progress, and close every log."""
        if self.cluster is not None:
            await self.cluster.leave()
        self.transaction_coordinator.stop()
        self.group_coordinator.stop()
        if self._server is not None:
            await self._server.stop(STOP_GRACE_S)
        await self.token_verifiers.close()
        if self.authorization is not None:
            self.authorization.audit.flush()
        await self.housekeeping.stop()
        await self.flusher.drain()
        # In a cluster a change may wait for ZooKeeper indefinitely; on a standalone broker it only
        # waits for the disk.
        await self.controller.close(None if self.cluster is None else SHUTDOWN_WRITE_TIMEOUT_S)
        await self._follower.close()
        for task in list(self._tasks):
            task.cancel()
        await self.store.close()
        offline = {key for key, each in self.partitions.items() if each.offline_reason is not None}
        await self.run_blocking(lambda: self.logs.close(offline))
        await self._stop_executor()
        self._lock.release()

    async def _stop_executor(self) -> None:
        """Wait for the worker threads to finish, without blocking the event loop."""
        await asyncio.get_running_loop().run_in_executor(None, self._executor.shutdown)

    @property
    def data_owner(self) -> str:
        """Identity of the data directories that this process has locked, unique on this machine
        since its boot; '' if the boot ID is unknown. Two processes with the same identity never run
        at the same time."""
        boot_id = self.fs.boot_id()
        return f"{boot_id}/{self.node_id}/{self._lock.identity}" if boot_id else ""

    @property
    def ports(self) -> dict[str, int]:
        """Bound ports by listener name."""
        return {} if self._server is None else self._server.ports

    @property
    def server(self) -> Server:
        assert self._server is not None, "the broker is started"
        return self._server

    # --------------------------------------------------------------------------- for handlers

    def find_partition(self, key: tuple[str, int]) -> Partition:
        """Return a partition that this broker leads.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR if its log cannot be opened,
                or NOT_LEADER_OR_FOLLOWER.
        """
        partition = self.partitions.get(key)
        if partition is None:
            if key in self.logs.unopened:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{key[0]}-{key[1]} is offline")
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not partition.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return partition

    @property
    def replication(self) -> Replication | None:
        return None if self.cluster is None else self.cluster.replication

    @property
    def can_acknowledge_alone(self) -> bool:
        """Whether a leader here may acknowledge acks=1 without asking its followers: on a
        standalone broker, or while this broker has a lease and is not shutting down."""
        return self.cluster is None or self.cluster.can_acknowledge_alone

    def leadership_proof(self, partition: Partition) -> asyncio.Future[None] | None:
        """Return a future to await before reporting something that only the leader can know.

        Returns None if no proof is needed: the broker is standalone or has a lease. The future
        fails with KafkaError if this broker no longer leads the partition."""
        if self.cluster is None or self.cluster.has_lease or partition.leadership is None:
            return None
        return partition.wait_for_proof(self.clock.monotonic())

    def check_can_prove_leadership(self, partition: Partition) -> None:
        """Raise KafkaError if leadership cannot be proved: this broker has no lease and is the only
        member of the ISR, so no follower can confirm it."""
        leadership = partition.leadership
        if leadership is None or not leadership.is_sole_isr_member:
            return
        if self.cluster is not None and not self.cluster.has_lease:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{partition.key}: this broker is the only in-sync replica and its lease has "
                "expired, so it cannot verify that it is still the leader",
            )

    def peer_endpoint(self, broker_id: int) -> tuple[str, int]:
        """Return the inter-broker endpoint of another broker. Raises ConnectionLost if it is
        unknown."""
        registration = self.image.brokers.get(broker_id)
        if registration is None:
            raise ConnectionLost(f"Broker {broker_id} is not registered")
        name = self.config.inter_broker_listener
        endpoint = registration.endpoints.get(name)
        if endpoint is None:
            raise ConnectionLost(f"Broker {broker_id} has no listener {name}")
        return endpoint

    def peer_tls(self) -> ssl.SSLContext | None:
        """Return the TLS context of connections to other brokers, or None for plain text."""
        return None if self._tls is None else self._tls.client(self.config.inter_broker_listener)

    def peer_authenticator(self) -> Authenticate | None:
        """Return the function that authenticates connections to other brokers, or None if they do
        not use SASL."""
        return self._peer_login.authenticate

    def _update_peer_rule(self) -> None:
        config, name = self.config, self.config.inter_broker_listener
        self._peer_login.use_settings(config.sasl_settings.get(name))
        protocol, own = config.listener_protocols[name], self._peer_login.principal
        authenticates = protocol.has_sasl
        if protocol.has_tls and not protocol.has_sasl:
            authenticates = config.tls_settings[name].client_auth != "none"
            assert self._tls is not None, "loaded before"
            own = self._tls.own_principal(name)
        super_users = parse_principals(config.super_users)
        self.peer_rule = PeerRule(name, authenticates, super_users, own)
        self.quotas.peers_changed(authenticate=authenticates)
        if self.authorization is not None:
            brokers = {own} if authenticates and own is not None else set()
            if self.authorization.set_super_users(super_users | brokers):
                self._permissions_changed()

    def leader_of(self, key: TopicPartition) -> int | None:
        """Return the leader of a partition according to the image, or None if the partition does
        not exist."""
        topic = self.image.topics.get(key.topic)
        if topic is None or not 0 <= key.partition < len(topic.partitions):
            return None
        return topic.partitions[key.partition].leader

    async def applied(self, revision: int) -> None:
        """Wait until the image includes the revision and this broker has reacted to it."""
        await self._follower.applied(revision)

    def features(self) -> Features:
        return FEATURES

    def endpoint_for(self, listener: str) -> tuple[str, int]:
        return self._endpoints()[listener]

    async def check_tls(self) -> None:
        """Load TLS certificates again if their files or properties have changed."""
        tls = self._tls
        if tls is not None:
            settings = self.config.tls_settings
            tls.apply(await self.run_blocking(lambda: tls.changes(settings)))
            self._update_peer_rule()

    async def _check_settings(self, config: BrokerConfig) -> None:
        """Check that altered TLS settings can be used. Raises KafkaError."""
        tls = self._tls
        if tls is None or config.tls_settings == self.config.tls_settings:
            return
        changes = await self.run_blocking(lambda: tls.changes(config.tls_settings))
        for name, (_, error) in changes.items():
            if error is not None and config.tls_settings[name] != self.config.tls_settings[name]:
                raise KafkaError(ErrorCode.INVALID_REQUEST, str(error))

    async def run_blocking(self, work: Callable[[], T]) -> T:
        """Run a function that may block on disk I/O in a thread, and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ------------------------------------------------------------------- reacting to metadata

    def _on_delta(self, delta: ImageDelta) -> Awaitable[None]:
        return self._apply_delta(delta)

    def _on_access(self, delta: AccessDelta) -> None:
        """Let a change of ACLs or quotas take effect on open connections, too."""
        if delta.quotas:
            self.quotas.use(self.image.quotas)
            if self._server is not None:
                self._server.quotas_changed()
        if self.authorization is not None and self.authorization.apply(delta):
            self._permissions_changed()

    def _permissions_changed(self) -> None:
        self.partitions_changed()
        self.quotas.peers_changed()
        delayed = {
            fetch for each in self.partitions.values() for fetch in tuple(each.delayed_fetches)
        }
        for fetch in delayed:
            fetch.access_changed()
        self.group_coordinator.permissions_changed()

    async def _apply_delta(self, delta: ImageDelta) -> None:
        if delta.broker_configs_changed:
            self._use_dynamic_config()
            await self.check_tls()
            for topic in self.image.topics.values():
                self._use_topic_config(topic)
        for topic in delta.topics_deleted:
            self._drop_topic(topic)
        await self._open_topics(delta.topics_created)
        for change in delta.partitions_changed:
            key = TopicPartition(change.topic.name, change.partition)
            partition = self.partitions.get(key)
            is_replica = self.node_id in change.new.replicas
            if partition is None:
                if is_replica:
                    await self._open_partitions(change.topic, [change.partition])
            elif not is_replica:
                self._drop_partition(key)
            elif self.cluster is not None:
                self.cluster.replication.apply_role(partition, change.topic, change.new)
            else:
                self.partitions_changed()
                partition.leader_epoch = change.new.leader_epoch
        for topic in delta.topic_configs_changed:
            self._use_topic_config(topic)
        if self.cluster is not None:
            self.cluster.image_changed()

    async def _open_topics(self, topics: list[TopicImage]) -> None:
        for topic in topics:
            indexes = [
                index
                for index, state in enumerate(topic.partitions)
                if self.node_id in state.replicas
            ]
            for start in range(0, len(indexes), OPEN_CHUNK):
                await self._open_partitions(topic, indexes[start : start + OPEN_CHUNK])

    async def _open_partitions(self, topic: TopicImage, indexes: list[int]) -> None:
        config = self._topic_config(topic)
        wanted = [
            WantedLog(TopicPartition(topic.name, index), topic.topic_id, config)
            for index in indexes
        ]
        self._update_topics_needing_records(topic.name, config)
        await self._open(wanted)

    async def _open(self, wanted: Sequence[WantedLog]) -> None:
        """Open logs that are not open yet. If a replica has been removed from this broker
        meanwhile, its log is deleted again."""
        async with self._opening:
            missing = [each for each in wanted if each.partition not in self.partitions]
            if not missing:
                return
            logs = await self.run_blocking(lambda: self.logs.open(missing))
            self.logs.register(logs)
            self._register_logs(
                [log for log in logs if self._has_replica(log.partition, log.topic_id)]
            )
            for log in logs:
                if log.partition not in self.partitions:
                    self._delete_log(log)

    def _has_replica(self, key: TopicPartition, topic_id: bytes) -> bool:
        """Return whether the image assigns a replica of the partition to this broker."""
        topic = self.image.topics.get(key.topic)
        if topic is None or topic.topic_id != topic_id or key.partition >= len(topic.partitions):
            return False
        return self.node_id in topic.partitions[key.partition].replicas

    def _register_logs(self, logs: list[Log]) -> None:
        self.partitions_changed()
        for log in logs:
            topic = self.image.topics[log.partition.topic]
            partition = self.partitions[log.partition] = Partition(
                log,
                topic.partitions[log.partition.partition].leader_epoch,
                waits_for_sync=self.config.log_flush_acks_all,
            )
            if self.cluster is not None:
                partition.high_watermark = self.logs.high_watermark_of(log)
                partition.is_leader = False
                state = topic.partitions[log.partition.partition]
                self.cluster.replication.apply_role(partition, topic, state)
            elif self._has_joined:
                self.leader_changed(partition)

    def _sync_failed(self, partition: Partition, error: OSError) -> None:
        is_offline = partition.offline_reason is not None
        self.logs.disk_watch.sync_failed(partition.log, error, needs_restart=is_offline)

    async def open_missing(self) -> None:
        """Retry the logs that could not be opened because of an I/O error."""
        for key, wanted in list(self.logs.unopened.items()):
            if not self._has_replica(wanted.partition, wanted.topic_id):
                self.logs.unopened.pop(key, None)
        await self._open(list(self.logs.unopened.values()))

    def _update_topics_needing_records(self, topic: str, config: TopicConfig) -> None:
        if needs_records(config):
            self.topics_needing_records.add(topic)
        else:
            self.topics_needing_records.discard(topic)

    def _drop_topic(self, topic: TopicImage) -> None:
        self.partitions_changed()
        self.topics_needing_records.discard(topic.name)
        self.group_coordinator.topic_deleted(topic)
        self.transaction_coordinator.topic_deleted(topic)
        for index in range(len(topic.partitions)):
            self._drop_partition(TopicPartition(topic.name, index))

    def _drop_partition(self, key: TopicPartition) -> None:
        """Close a partition whose topic was deleted or which was reassigned to other brokers."""
        partition = self.partitions.pop(key, None)
        if partition is None:
            return
        self.partitions_changed()
        if self.cluster is not None:
            self.cluster.replication.forget(key)
            partition.follow(partition.leader_epoch)
            self.leader_changed(partition)
        self._delete_log(partition.log)
        partition.wake_delayed_fetches()

    def partitions_changed(self) -> None:
        """Invalidate what fetch sessions and the produce fast path know about partitions, and about
        who may use them."""
        self.partitions_version = object()

    def leader_changed(self, partition: Partition) -> None:
        """Start or stop the coordinator of a partition that this broker starts or stops leading."""
        coordinators: dict[str, Coordinator] = {
            OFFSETS_TOPIC: self.group_coordinator,
            TRANSACTION_TOPIC: self.transaction_coordinator,
        }
        coordinator = coordinators.get(partition.key.topic)
        if coordinator is None:
            return
        if partition.is_leader:
            coordinator.partition_opened(partition)
        else:
            coordinator.partition_closed(partition)

    def _delete_log(self, log: Log) -> None:
        try:
            self.housekeeping.remove_later(self.logs.delete(log))
        except OSError as error:
            logger.error(
                "Could not delete %s: %s; the broker no longer uses it", log.directory, error
            )

    def _topic_config(self, topic: TopicImage) -> TopicConfig:
        return topic_config(self.config, topic.configs)

    def _use_topic_config(self, topic: TopicImage) -> None:
        self.partitions_changed()
        config = self._topic_config(topic)
        for index in range(len(topic.partitions)):
            partition = self.partitions.get(TopicPartition(topic.name, index))
            if partition is not None:
                partition.use_config(config)
        self._update_topics_needing_records(topic.name, config)

    def _use_dynamic_config(self) -> None:
        broker_configs, default_configs = self.image.dynamic_configs(self.node_id)
        self.config = self._static_config.with_dynamic(default_configs, broker_configs)
        self._sasl.use_config(self.config)
        self.token_verifiers.use(self.config.oauthbearer_settings)
        self.group_coordinator.use_config(self.config)
        if self._server is not None:
            self._server.config = _server_config(self.config)
            self._update_peer_rule()


def _server_config(config: BrokerConfig) -> ServerConfig:
    return ServerConfig(
        listeners=tuple(Listener(each.name, each.host, each.port) for each in config.listeners),
        socket_request_max_bytes=config.socket_request_max_bytes,
        queued_max_request_bytes=config.queued_max_request_bytes,
        connections_max_idle_ms=config.connections_max_idle_ms,
        max_connections=config.max_connections,
        max_connections_per_ip=config.max_connections_per_ip,
        max_connections_per_ip_overrides=_per_ip(config.max_connections_per_ip_overrides),
        max_connection_creation_rate=config.max_connection_creation_rate,
        max_connections_of_listener=config.listener_limits("max.connections"),
        max_connection_creation_rate_of_listener=config.listener_limits(
            "max.connection.creation.rate"
        ),
        inter_broker_listener=config.inter_broker_listener,
        socket_send_buffer_bytes=_unless_default(config, "socket.send.buffer.bytes"),
        socket_receive_buffer_bytes=_unless_default(config, "socket.receive.buffer.bytes"),
        socket_listen_backlog_size=config.socket_listen_backlog_size,
    )


def _unless_default(config: BrokerConfig, name: str) -> int:
    """Return the configured buffer size, or -1 to keep the kernel's own.

    Kafka's default of 100 KB doubles the CPU time of large requests, while the kernel's buffers
    grow as needed. So only a size that was set explicitly is used."""
    return int(config.static[name]) if name in config.static else -1


def _per_ip(overrides: str) -> dict[str, int]:
    """Parse `host1:200,host2:100` into a dict."""
    pairs = (item.rpartition(":") for item in overrides.split(",") if item.strip())
    return {host.strip(): int(count) for host, _, count in pairs}
