"""Server-side assignors, which distribute partitions over the members of a consumer group.

An assignor is a function of the members' subscriptions, their current target assignments, and the
partition counts of the topics. Its result depends on nothing else, not even on the order in which
the members are given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.core.group.assignors.range import assign_ranges
from ottla.core.group.assignors.spec import MemberSpec
from ottla.core.group.assignors.uniform import assign_uniformly
from ottla.core.group.consumer_records import Assignment

Assignor = Callable[[Mapping[str, MemberSpec], Mapping[bytes, int]], dict[str, Assignment]]

ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}
"""The available assignors, by name."""

__all__ = ["ASSIGNORS", "Assignor", "MemberSpec"]
