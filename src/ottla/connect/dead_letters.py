"""Dead letter queue: the topic for records that a sink failed to process.

The topic is created on the first failure. Dead letters are written before their batch is
committed, so each is delivered at least once: a crash may duplicate it, but not lose it.
"""

from __future__ import annotations

from typing import Any

from ottla.connect.pipeline import Row, StageFailed, context_headers
from ottla.connect.task_context import TaskContext
from ottla.connect.topics import make_topics


class DeadLetters:
    def __init__(self, context: TaskContext) -> None:
        self._context = context
        self._producer: Any = None
        self._sent: list[Any] = []

    def send(self, failure: StageFailed, row: Row) -> None:
        config, task = self._context.config, self._context.id.task
        headers = list(row.headers)
        if config.policy.queue_headers:
            headers += context_headers(config.name, task, failure, row)
        sent = self._open().send(config.policy.queue, row.value, key=row.key, headers=headers)
        self._sent.append(sent)

    def flush(self) -> None:
        """Wait until all dead letters are written; raise the error of one that could not be."""
        if self._producer is not None:
            self._producer.flush()
        sent, self._sent = self._sent, []
        for each in sent:
            each.result()

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _open(self) -> Any:
        if self._producer is None:
            from ottla.client.producer.producer import Producer

            policy = self._context.config.policy
            make_topics(self._context.client("admin"), [policy.queue], 1, policy.queue_replication)
            self._producer = Producer(profile=self._context.client("producer"))
        return self._producer
