"""Requests that only the controller decides, passed on to it by every other broker.

Clients send many of them to any broker. The request goes on in the version it came in, and the
controller's answer back, untouched. If there is no controller, or it cannot be reached, the client
is told NOT_CONTROLLER in the words of each API: it asks for metadata and tries again.

What a broker has passed on is not passed on again: two brokers that each take the other for the
controller would send it to and fro."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.context import Body, Handler, RequestContext, Response
from ottla.broker.peers import Peers, is_peer
from ottla.core.controller.create_topics import NewTopic, TopicDecision
from ottla.net.errors import ClientError
from ottla.wire.compile import Message

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

logger = logging.getLogger(__name__)

FORWARDED = frozenset({19, 20, 33, 37, 43, 44, 45, 46})
"""CreateTopics, DeleteTopics, AlterConfigs, CreatePartitions, ElectLeaders,
IncrementalAlterConfigs, AlterPartitionReassignments, ListPartitionReassignments."""
CREATE_TOPICS = 19
CREATE_TOPICS_VERSION = 7
CREATION_TIMEOUT_MS = 10_000
ANSWER_TIMEOUT_S = 40.0


class Forwarding:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._peers = Peers(broker)

    async def forward(self, api: int, version: int, request: dict[str, Any]) -> Body:
        """Raises KafkaError: NOT_CONTROLLER."""
        try:
            answer = await self._peers.request(
                self._broker.image.controller_id,
                api,
                request,
                ANSWER_TIMEOUT_S,
                min_version=version,
                max_version=version,
            )
        except ClientError as error:
            logger.info("the controller could not be asked: %s", error)
            raise KafkaError(ErrorCode.NOT_CONTROLLER, str(error)) from None
        body: Body = as_dict(answer)
        return body

    async def create_topics(self, requested: Sequence[NewTopic]) -> list[TopicDecision]:
        """Topics that this broker needs. Raises KafkaError."""
        topics = [
            {
                "name": topic.name,
                "num_partitions": topic.num_partitions,
                "replication_factor": topic.replication_factor,
                "assignments": [],
                "configs": [{"name": name, "value": value} for name, value in topic.configs],
            }
            for topic in requested
        ]
        body = {"topics": topics, "timeout_ms": CREATION_TIMEOUT_MS, "validate_only": False}
        answer = await self.forward(CREATE_TOPICS, CREATE_TOPICS_VERSION, body)
        return [
            TopicDecision(told["name"], error=_error(told["error_code"], told["error_message"]))
            for told in answer["topics"]
        ]

    def close(self) -> None:
        self._peers.close()


def forwarding(handle: Handler) -> Handler:
    """The handler, but that a broker which is not the controller passes the request on."""

    def handle_or_forward(broker: Any, context: RequestContext, request: Any) -> Response:
        cluster = broker.cluster
        if cluster is None or cluster.is_controller or is_peer(context.client_id):
            return handle(broker, context, request)
        return _forward_or_refuse(broker, context, request, handle)

    return handle_or_forward


async def _forward_or_refuse(
    broker: Any, context: RequestContext, request: Any, handle: Handler
) -> Body | None:
    try:
        answer: Body = await broker.cluster.forwarding.forward(
            context.api_key, context.api_version, as_dict(request)
        )
    except KafkaError:
        # Our own controller knows how each API says that it is not the controller.
        response = handle(broker, context, request)
        return response if response is None or isinstance(response, dict) else await response
    return answer


def _error(code: int, message: str | None) -> KafkaError | None:
    return KafkaError(ErrorCode(code), message or "") if code else None


def as_dict(message: Any) -> Any:
    """A decoded message as the nested dicts that writers take."""
    if isinstance(message, Message):
        return {name: as_dict(value) for name, value in vars(message).items()}
    if isinstance(message, list | tuple):
        return [as_dict(each) for each in message]
    return message
