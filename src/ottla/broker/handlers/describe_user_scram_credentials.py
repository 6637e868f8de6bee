"""DescribeUserScramCredentials (key 50), version 0 (KIP-554): the mechanisms of users.

Behaviours
- No list of users, or an empty one, describes every user. The response contains mechanisms and
  iterations, never salts or keys.
- A user without credentials: RESOURCE_NOT_FOUND. A user named twice: DUPLICATE_RESOURCE.
- Any broker answers, from its own image.

Deviations
- Kafka does not let clients that authenticated with a delegation token describe users. There are no
  such clients here; the check belongs at the beginning of `handle`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode
from ottla.broker.context import RequestContext
from ottla.broker.ports import Metadata
from ottla.metadata.image import ClusterImage

if TYPE_CHECKING:
    from ottla.wire.messages.describe_user_scram_credentials import (
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponseDict,
        DescribeUserScramCredentialsResultDict,
    )


def handle(
    broker: Metadata, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponseDict:
    image = broker.image
    counts = Counter([each.name for each in request.users or ()]) or Counter(sorted(image.scram))
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "results": [_described(image, user, count) for user, count in counts.items()],
    }


def _described(
    image: ClusterImage, user: str, count: int
) -> DescribeUserScramCredentialsResultDict:
    if count > 1:
        return _error(user, ErrorCode.DUPLICATE_RESOURCE, f"User '{user}' is named twice.")
    credentials = image.scram.get(user)
    if credentials is None:
        return _error(
            user, ErrorCode.RESOURCE_NOT_FOUND, f"User '{user}' has no SCRAM credentials."
        )
    return {
        "user": user,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "credential_infos": [
            {"mechanism": mechanism.value, "iterations": credential.iterations}
            for mechanism, credential in credentials.items()
        ],
    }


def _error(user: str, code: ErrorCode, message: str) -> DescribeUserScramCredentialsResultDict:
    return {"user": user, "error_code": code, "error_message": message, "credential_infos": []}
