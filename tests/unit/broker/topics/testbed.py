"""A broker without sockets or logs: a real store, image and controller, called through the codec.

Requests are encoded and decoded by the codec. Responses are encoded by it in strict mode and
decoded by kio, so each test also verifies the wire format of its version."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

from kio.serial import entity_reader
from tests.unit.metadata.memory_files import MemoryFileSystem

from ottla.base.config.broker import BrokerConfig
from ottla.broker.context import RequestContext
from ottla.broker.controller import Controller
from ottla.broker.quotas import ClientQuotas
from ottla.broker.registration import FoundTopic, ensure_cluster_id, join_cluster
from ottla.core.security.peers import PeerRule
from ottla.metadata.embedded import EmbeddedStore
from ottla.metadata.follower import ImageFollower
from ottla.metadata.image import ClusterImage, ImageDelta
from ottla.wire import codec, schema
from ottla.wire.api import Api

LISTENER = "PLAINTEXT"

codec.set_strict(True)


async def _at_once(work: Callable[[], Any]) -> Any:
    return work()


class FakeBroker:
    def __init__(self, properties: dict[str, str], fs: MemoryFileSystem, node_id: int) -> None:
        self.node_id = node_id
        self.config = BrokerConfig({"node.id": str(node_id), **properties})
        self.peer_rule = PeerRule("PLAINTEXT", authenticates=False)
        self.image = ClusterImage()
        self.quotas = ClientQuotas(self.config, lambda: 0.0)
        self.fs = fs
        self.deltas: list[ImageDelta] = []
        self.reaction: Callable[[ImageDelta], Awaitable[None] | None] = lambda delta: None
        self.store: EmbeddedStore
        self.controller: Controller
        self.follower: ImageFollower

    def on_image_delta(self, delta: ImageDelta) -> Awaitable[None] | None:
        self.deltas.append(delta)
        if delta.broker_configs_changed:
            own, of_all = self.image.dynamic_configs(self.node_id)
            self.config = self.config.with_dynamic(of_all, own)
        return self.reaction(delta)

    async def start(
        self, *, clean_shutdown: bool = True, found_topics: tuple[FoundTopic, ...] = ()
    ) -> None:
        await self.load()
        await self.join(clean_shutdown=clean_shutdown, found_topics=found_topics)

    async def open_store(self) -> None:
        self.store = await EmbeddedStore.open(self.fs, "/data/ottla-metadata", _at_once)

    async def load(self) -> None:
        await self.open_store()
        self.follower = ImageFollower(self.store, self.image, self.on_image_delta)
        await self.follower.load()
        self.follower.follow()
        self.controller = Controller(self, self.follower)
        await ensure_cluster_id(self)

    async def join(
        self, *, clean_shutdown: bool = True, found_topics: tuple[FoundTopic, ...] = ()
    ) -> None:
        await join_cluster(
            self,
            self.controller,
            self.follower,
            endpoints={LISTENER: ("localhost", 19092)},
            clean_shutdown=clean_shutdown,
            found_topics=found_topics,
        )

    async def stop(self) -> None:
        await self.controller.close()
        await self.follower.close()
        await self.store.close()

    async def call(self, handler: Any, version: int, **request: Any) -> Any:
        """Call a handler and return its response as decoded by kio."""
        key = api_of(handler)
        decoded = _through_the_wire(key, version, request)
        context = RequestContext(key, version, 7, "test", LISTENER, "localhost")
        response = handler.handle(self, context, decoded)
        if inspect.isawaitable(response):
            response = await response
        return read_by_kio(key, version, response)

    async def create(self, handler: ModuleType, *names: str, **fields: Any) -> None:
        topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
        answer = await self.call(handler, 7, topics=[{**topic, **fields} for topic in topics])
        assert [int(topic.error_code) for topic in answer.topics] == [0] * len(names)


def _through_the_wire(key: int, version: int, request: dict[str, Any]) -> Any:
    frame = memoryview(b"".join(codec.encode_request(key, version, 7, "test", request)))[4:]
    position = codec.decode_request_header(frame).body_position
    return codec.decode_request(key, version, frame, position)


def read_by_kio(key: int, version: int, response: Any) -> Any:
    frame = b"".join(codec.encode_response(key, version, 7, response))[4:]
    start = 5 if schema.header_version(key, version, "response") == 1 else 4
    entity = schema._message_class(key, version, "response")
    message, size = entity_reader(entity)(frame[start:], 0)
    assert start + size == len(frame)
    return message


def with_broker(
    scenario: Callable[[FakeBroker], Awaitable[None]],
    fs: MemoryFileSystem | None = None,
    node_id: int = 1,
    **properties: str,
) -> None:
    """Run a scenario on a started broker. Properties use underscores instead of dots."""

    async def run() -> None:
        named = {name.replace("_", "."): value for name, value in properties.items()}
        broker = FakeBroker(named, fs or MemoryFileSystem(), node_id)
        await broker.start()
        try:
            await scenario(broker)
        finally:
            await broker.stop()

    asyncio.run(run())


def versions(handler: Any) -> list[int]:
    return list(schema.versions(api_of(handler)))


def api_of(handler: Any) -> Api:
    """Return the API that a handler module is named after."""
    return Api[handler.__name__.rpartition(".")[2].upper()]
