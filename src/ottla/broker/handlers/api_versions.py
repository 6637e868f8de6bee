"""ApiVersions (key 18), versions 0–4: the APIs and versions that this broker serves.

Behaviours
- The ranges are exactly what the router serves, with one exception that Kafka 4 makes, too: Produce
  is advertised from 0 although versions 0 to 2 are refused, because older librdkafka versions
  choose their compression by that minimum (KAFKA-18659).
- Envelope is advertised to brokers only: on the inter-broker listener of a broker in a cluster.
- KIP-511: an unknown version of this request gets a version 0 response with UNSUPPORTED_VERSION and
  the range of this API, so that a newer client can fall back; the router uses `unsupported` for
  that. From version 3 the client's software name and version are checked; invalid ones are
  INVALID_REQUEST.
- KIP-584: features are returned from version 3. A supported feature that starts at level 0 is
  returned from version 4 only, because older Java clients fail on it (KIP-1022).

Deviations
- The software name and version are checked, but not stored."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import ErrorCode
from ottla.broker.context import RequestContext
from ottla.broker.features import Features
from ottla.core.security.peers import PeerRule
from ottla.wire.api import Api

if TYPE_CHECKING:
    from ottla.wire.messages.api_versions import (
        ApiVersionDict,
        ApiVersionsRequest,
        ApiVersionsResponseDict,
    )

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)
BETWEEN_BROKERS = frozenset({Api.ENVELOPE})
_FIRST_WITH_SOFTWARE = 3
_FIRST_WITH_LEVEL_ZERO = 4


class Ports(Protocol):
    """The parts of a broker that ApiVersions uses."""

    @property
    def peer_rule(self) -> PeerRule: ...

    @property
    def cluster(self) -> object | None:
        """None on a standalone broker."""

    def features(self) -> Features: ...


class ApiVersions:
    """The handler. The router creates it, because only the router knows what is served."""

    def __init__(self, supported_versions: Sequence[tuple[int, int, int]]) -> None:
        self._api_keys: list[ApiVersionDict] = [
            {"api_key": api_key, "min_version": low, "max_version": high}
            for api_key, low, high in supported_versions
        ]
        self._for_clients = [
            entry for entry in self._api_keys if entry["api_key"] not in BETWEEN_BROKERS
        ]
        own = [entry for entry in self._api_keys if entry["api_key"] == Api.API_VERSIONS]
        self.unsupported: ApiVersionsResponseDict = {
            "error_code": ErrorCode.UNSUPPORTED_VERSION,
            "api_keys": own,
        }

    def handle(
        self, broker: Ports, context: RequestContext, request: ApiVersionsRequest
    ) -> ApiVersionsResponseDict:
        if context.api_version >= _FIRST_WITH_SOFTWARE and not (
            _SOFTWARE.fullmatch(request.client_software_name)
            and _SOFTWARE.fullmatch(request.client_software_version)
        ):
            return {"error_code": ErrorCode.INVALID_REQUEST}
        features = broker.features()
        is_between_brokers = (
            broker.cluster is not None and context.listener == broker.peer_rule.listener
        )
        lowest = 0 if context.api_version >= _FIRST_WITH_LEVEL_ZERO else 1
        return {
            "error_code": ErrorCode.NONE,
            "api_keys": self._api_keys if is_between_brokers else self._for_clients,
            "supported_features": [
                {"name": name, "min_version": low, "max_version": high}
                for name, (low, high) in features.supported.items()
                if low >= lowest
            ],
            "finalized_features_epoch": features.epoch,
            "finalized_features": [
                {"name": name, "max_version_level": level, "min_version_level": level}
                for name, level in features.finalized.items()
            ],
        }
