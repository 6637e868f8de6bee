"""Topics that a mirror copies, and their names in the target, with MirrorMaker's properties.

With DefaultReplicationPolicy, the topic `orders` of the source `us-west` is `us-west.orders` in the
target, and topics that came from the target (`eu.orders`, mirrored to `eu`) are not copied back.
With IdentityReplicationPolicy names are unchanged, and two mirrors in opposite directions would
copy records in circles. The functions do no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ottla.base.config.definition import ConfigType, Importance
from ottla.base.config.validator import NonEmpty, OneOf
from ottla.connect.definition import Settings, key, with_prefix

IDENTITY = "IdentityReplicationPolicy"
POLICIES = ("DefaultReplicationPolicy", IDENTITY)
_JAVA = "org.apache.kafka.connect.mirror."
_STRING, _HIGH = ConfigType.STRING, Importance.HIGH
CLUSTER_KEYS = [
    key("source.cluster.alias", _STRING, None, "Alias of the source cluster.", NonEmpty(), _HIGH),
    key("target.cluster.alias", _STRING, None, "Alias of the target cluster.", NonEmpty(), _HIGH),
    key("source.cluster.bootstrap.servers", _STRING, None,
        "Brokers of the source cluster, as host:port.", NonEmpty(), _HIGH),
    key("target.cluster.bootstrap.servers", _STRING, None,
        "Brokers of the target cluster, as host:port.", NonEmpty(), _HIGH),
    key("replication.policy.class", _STRING, POLICIES[0],
        "Policy that names the replicated topics.",
        OneOf((*POLICIES, *(_JAVA + each for each in POLICIES)))),
    key("replication.policy.separator", _STRING, ".",
        "Separator between the alias of the source cluster and the name of a topic.", NonEmpty()),
    key("offset-syncs.topic.location", _STRING, "source",
        "Cluster that contains the offset-syncs topic.", OneOf(("source", "target"))),
]  # fmt: skip
CLUSTER_REQUIRED = (
    "source.cluster.alias", "target.cluster.alias",
    "source.cluster.bootstrap.servers", "target.cluster.bootstrap.servers",
)  # fmt: skip
CLUSTER_PREFIXES = ("source.cluster.", "target.cluster.")


class Patterns:
    """Included and excluded names, as regular expressions that match the whole name.

    Raises:
        ValueError: A pattern is not a valid regular expression.
    """

    def __init__(self, name: str, included: Sequence[str], excluded: Sequence[str]) -> None:
        try:
            self._included = [re.compile(each) for each in included]
            self._excluded = [re.compile(each) for each in excluded]
        except re.error as error:
            raise ValueError(f"{name} contains an invalid regular expression: {error}") from None

    def __contains__(self, text: object) -> bool:
        if not isinstance(text, str) or any(each.fullmatch(text) for each in self._excluded):
            return False
        return any(each.fullmatch(text) for each in self._included)


class Naming:
    def __init__(self, settings: Settings) -> None:
        self.source: str = settings["source.cluster.alias"]
        self.target: str = settings["target.cluster.alias"]
        self._separator: str = settings["replication.policy.separator"]
        policy = settings["replication.policy.class"].removeprefix(_JAVA)
        self._is_identity = policy == IDENTITY
        if self.source == self.target:
            raise ValueError("source.cluster.alias and target.cluster.alias must differ")

    def remote(self, topic: str) -> str:
        """Return the name of a source topic in the target."""
        return topic if self._is_identity else f"{self.source}{self._separator}{topic}"

    def is_from_target(self, topic: str) -> bool:
        """Return whether a topic was copied from the target."""
        return not self._is_identity and topic.startswith(f"{self.target}{self._separator}")

    @property
    def checkpoints(self) -> str:
        return f"{self.source}{self._separator}checkpoints{self._separator}internal"

    def offset_syncs(self, location: str) -> str:
        other = self.target if location == "source" else self.source
        sep = self._separator
        return f"mm2-offset-syncs{sep}{other}{sep}internal"


def client_of(settings: Settings, which: str) -> dict[str, str]:
    """Return the client properties of the source or the target cluster."""
    found = with_prefix({k: str(v) for k, v in settings.items()}, f"{which}.cluster.")
    found.pop("alias", None)
    return found
