"""Assignors on the broker's side: who of a consumer group gets which partitions.

An assignor is a function of who subscribes to what, what each has been assigned so far, and how
many partitions the topics have. Its answer depends on nothing else, not even on the order in which
members are named."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.core.group.assignors.range import assign_ranges
from ottla.core.group.assignors.spec import MemberSpec
from ottla.core.group.assignors.uniform import assign_uniformly
from ottla.core.group.consumer_records import Assignment

Assignor = Callable[[Mapping[str, MemberSpec], Mapping[bytes, int]], dict[str, Assignment]]

ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}

__all__ = ["ASSIGNORS", "Assignor", "MemberSpec"]
