"""The audit log of the authorizer: who was denied what, and at level DEBUG who was allowed what.

The logger is `kafka.authorizer.logger`, and a line has Kafka's format or is a JSON object:

    Principal = User:alice is Denied operation = READ from host = 10.0.0.7 on resource =
    Topic:LITERAL:orders for request = Fetch with resourceRefCount = 1 based on rule DefaultDeny

| result | level |
|---|---|
| denied | INFO |
| allowed | DEBUG |
| either, where nothing is granted: filters of listings, authorized operations | TRACE |

A client can cause thousands of equal denials per second. The first one is logged at once; the
number of its repetitions follows after `INTERVAL_S`, as the `resourceRefCount` of one more line. If
a client is denied more than `MAX_OF_CLIENT` different things in that time, the rest is counted and
logged as one number per client. No denial is dropped silently, and neither the memory nor the
number of lines grows with the number of requests.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from ottla.base.acl import AclBinding, AclResourceType, PatternType
from ottla.broker.loggers import AUDIT, TRACE
from ottla.core.security.authorizer import Decision, Reason
from ottla.core.security.permissions import Permission
from ottla.wire import schema

INTERVAL_S = 10.0
MAX_OF_CLIENT = 100
"""Number of different questions of one client that are logged one by one in an interval."""
MAX_QUESTIONS = 2_000
"""The same of all clients together."""
MAX_CLIENTS = 1_000
"""Number of clients whose further questions are counted separately."""

_RULES = {
    Reason.SUPER_USER: "SuperUser",
    Reason.NO_BINDING_APPLIES: "DefaultDeny",
    Reason.NO_BINDINGS_DENY: "DefaultDeny",
    Reason.NO_BINDINGS_ALLOW: "DefaultAllow",
}
_RESOURCE_TYPES = {
    AclResourceType.TOPIC: "Topic",
    AclResourceType.GROUP: "Group",
    AclResourceType.CLUSTER: "Cluster",
    AclResourceType.TRANSACTIONAL_ID: "TransactionalId",
    AclResourceType.DELEGATION_TOKEN: "DelegationToken",
    AclResourceType.USER: "User",
}

logger = logging.getLogger(AUDIT)


class Question(NamedTuple):
    """A question that the authorizer has answered."""

    principal: str
    host: str
    api: int
    permission: Permission
    name: str
    """Name of the resource."""
    is_allowed: bool
    is_audited: bool
    """Whether the answer grants or refuses something, rather than filter a listing."""

    @property
    def level(self) -> int:
        if not self.is_audited:
            return TRACE
        return logging.DEBUG if self.is_allowed else logging.INFO


class _Logged:
    """A question that was logged in this interval."""

    __slots__ = ("repetitions", "rule")

    def __init__(self, rule: str) -> None:
        self.rule = rule
        self.repetitions = 0


class AuditLog:
    """Writes questions to the log, and counts those that are repeated."""

    def __init__(
        self,
        *,
        as_json: bool,
        time_ms: Callable[[], int],
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        """Create an audit log.

        Args:
            as_json: Whether lines are JSON objects.
            time_ms: Returns the time in milliseconds since 1970.
            call_later: Calls a function after a number of seconds.
        """
        self._as_json = as_json
        self._time_ms = time_ms
        self._call_later = call_later
        self._logged: dict[Question, _Logged] = {}
        self._of_client: Counter[tuple[str, str]] = Counter()
        self._further: Counter[tuple[str, str, bool]] = Counter()
        self._is_scheduled = False

    @property
    def logs_allowed(self) -> bool:
        """Whether answers that allow something are logged, too."""
        return logger.isEnabledFor(logging.DEBUG)

    def record(self, question: Question, explain: Callable[[], Decision]) -> None:
        """Log a question, or count it if it was logged lately.

        Args:
            question: The question and its answer.
            explain: Returns the cause of the answer; called only if a line is written.
        """
        level = question.level
        if not logger.isEnabledFor(level):
            return
        known = self._logged.get(question)
        if known is not None:
            known.repetitions += 1
            return
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_later(INTERVAL_S, self.flush)
        client = question.principal, question.host
        if len(self._logged) >= MAX_QUESTIONS or self._of_client[client] >= MAX_OF_CLIENT:
            self._count_further(question)
            return
        self._of_client[client] += 1
        known = self._logged[question] = _Logged(_rule_text(explain()))
        self._write(question, known.rule, 1)

    def flush(self) -> None:
        """Log how often questions were repeated, and forget them."""
        logged, self._logged = self._logged, {}
        further, self._further = self._further, Counter()
        self._of_client.clear()
        self._is_scheduled = False
        for question, known in logged.items():
            if known.repetitions:
                self._write(question, known.rule, known.repetitions)
        for (principal, host, is_allowed), count in further.items():
            self._write_further(principal, host, count, is_allowed=is_allowed)

    def _count_further(self, question: Question) -> None:
        key = question.principal, question.host, question.is_allowed
        if key not in self._further and len(self._further) >= MAX_CLIENTS:
            key = "*", "*", question.is_allowed
        self._further[key] += 1

    def _write(self, question: Question, rule: str, count: int) -> None:
        result = _result(question.is_allowed)
        permission = question.permission
        kind, pattern = _RESOURCE_TYPES[permission.type], PatternType.LITERAL.name
        request = _api_name(question.api)
        if self._as_json:
            self._write_json(
                question.level,
                {
                    "principal": question.principal,
                    "result": result,
                    "operation": permission.operation.name,
                    "host": question.host,
                    "resource_type": kind,
                    "pattern_type": pattern,
                    "resource_name": question.name,
                    "request": request,
                    "resource_ref_count": count,
                    "rule": rule,
                },
            )
            return
        logger.log(
            question.level,
            "Principal = %s is %s operation = %s from host = %s on resource = %s:%s:%s for request "
            "= %s with resourceRefCount = %d based on rule %s",
            question.principal,
            result,
            permission.operation.name,
            question.host,
            kind,
            pattern,
            question.name,
            request,
            count,
            rule,
        )

    def _write_further(self, principal: str, host: str, count: int, *, is_allowed: bool) -> None:
        level = logging.DEBUG if is_allowed else logging.INFO
        result = _result(is_allowed)
        if self._as_json:
            line = {"principal": principal, "result": result, "host": host, "further": count}
            self._write_json(level, line)
            return
        logger.log(
            level,
            "Principal = %s is %s %d further operations from host = %s within %d seconds",
            principal,
            result,
            count,
            host,
            INTERVAL_S,
        )

    def _write_json(self, level: int, fields: dict[str, object]) -> None:
        now = datetime.fromtimestamp(self._time_ms() / 1000, UTC)
        line = {
            "time": now.isoformat(timespec="milliseconds"),
            "level": "TRACE" if level == TRACE else logging.getLevelName(level),
            "logger": AUDIT,
            **fields,
        }
        logger.log(level, "%s", json.dumps(line), extra={"is_whole_line": True})


def _api_name(api: int) -> str:
    """Return Kafka's name of an API, such as `OffsetCommit`."""
    return "".join(word.capitalize() for word in schema.api_name(api).split("_"))


def _result(is_allowed: bool) -> str:
    return "Allowed" if is_allowed else "Denied"


def _rule_text(decision: Decision) -> str:
    cause = decision.cause
    return _acl_text(cause) if isinstance(cause, AclBinding) else _RULES[cause]


def _acl_text(binding: AclBinding) -> str:
    return (
        f"MatchingAcl(acl=StandardAcl[resourceType={binding.resource_type.name}, "
        f"resourceName={binding.name}, patternType={binding.pattern_type.name}, "
        f"principal={binding.principal}, host={binding.host}, "
        f"operation={binding.operation.name}, permissionType={binding.permission.name}])"
    )
