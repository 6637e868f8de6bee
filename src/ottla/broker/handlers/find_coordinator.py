"""FindCoordinator (key 10), versions 0-6: who coordinates a group or a transactional id.

Behaviours
- One key in versions 0-3, a list of keys from version 4 (KIP-699). Kinds: groups (0), transactions
  (1, from version 1), share groups (2, from version 6); others are INVALID_REQUEST.

Deviations
- This broker coordinates nothing yet, so the answer is always COORDINATOR_NOT_AVAILABLE, Kafka's
  word for "ask again later". It is answered at all because librdkafka concludes from the presence
  of this API that a broker takes lz4; without it, it silently sends such records uncompressed."""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ErrorCode
from ottla.broker.context import Body, RequestContext

API_KEY = 10
_FIRST_WITH_MANY_KEYS = 4
_FIRST_WITH_SHARE_GROUPS = 6
_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_NOBODY: Body = {"node_id": -1, "host": "", "port": -1}


def handle(broker: Any, context: RequestContext, request: Any) -> Body:
    answer = {**_refusal(request.key_type, context.api_version), **_NOBODY}
    if context.api_version < _FIRST_WITH_MANY_KEYS:
        return answer
    return {"coordinators": [{"key": key, **answer} for key in request.coordinator_keys]}


def _refusal(kind: int, version: int) -> Body:
    known: tuple[int, ...] = (_GROUP, _TRANSACTION)
    if version >= _FIRST_WITH_SHARE_GROUPS:
        known = (*known, _SHARE)
    if kind not in known:
        message = f"Coordinators of kind {kind} are not known in version {version}."
        return {"error_code": ErrorCode.INVALID_REQUEST, "error_message": message}
    message = "This broker coordinates no groups and no transactions."
    return {"error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE, "error_message": message}
