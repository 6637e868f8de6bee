"""DescribeUserScramCredentials (key 50), version 0 (KIP-554): the mechanisms of users.

Behaviours
- No list of users, or an empty one, describes every user. The response contains mechanisms and
  iterations, never salts or keys.
- A user without credentials: RESOURCE_NOT_FOUND. A user named twice: DUPLICATE_RESOURCE.
- With an authorizer, the client needs DESCRIBE on the cluster. CLUSTER_AUTHORIZATION_FAILED is at
  the top level, and at every user that the request names.
- Any broker answers, from its own image.

Deviations
- DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for clients that logged in with a delegation token."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.context import RequestContext
from ottla.broker.ports import Metadata
from ottla.core.controller.delegation_tokens import check_has_no_token
from ottla.core.security.permissions import DESCRIBE_CLUSTER
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
    try:
        check_has_no_token(context.principal)
        context.check(DESCRIBE_CLUSTER)
    except KafkaError as error:
        names = dict.fromkeys(each.name for each in request.users or ())
        return {
            "error_code": error.code,
            "error_message": error.message,
            "results": [_error(name, error.code, error.message) for name in names],
        }
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
