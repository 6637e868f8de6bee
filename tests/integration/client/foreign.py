"""A broker for the clients' tests: Ottla's, or Apache Kafka's in `make compat`."""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

from tests.raw_client import POLL_S, TIMEOUT_S, RawClient

from ottla.base.errors import ErrorCode

FOREIGN = os.environ.get("OTTLA_TEST_BOOTSTRAP") or None
NOT_YET = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)


class ForeignBroker(NamedTuple):
    bootstrap: str

    @property
    def port(self) -> int:
        return int(self.bootstrap.rpartition(":")[2])


class PatientClient(RawClient):
    """A client that retries while the broker does not know a new topic.

    Apache Kafka reports a topic as created before its brokers know of it."""

    def produce(self, *arguments: Any, **options: Any) -> Any:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            answer = super().produce(*arguments, **options)
            if answer.error_code not in NOT_YET or time.monotonic() > deadline:
                return answer
            time.sleep(POLL_S)
