"""Replication throttles of a reassignment (KIP-73), set when it starts and removed afterwards.

brokers   leader.replication.throttled.rate, follower.replication.throttled.rate
topics    leader.replication.throttled.replicas: the current replicas of the moving partitions
          follower.replication.throttled.replicas: the replicas that the reassignment adds"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ottla.base.config.resource import ConfigSource, ResourceType
from ottla.client.admin.configs import ConfigChange, ConfigResource

if TYPE_CHECKING:
    from ottla.cli.replica_plan import Assignment
    from ottla.client.admin import Admin

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"


def limit(admin: Admin, bytes_per_second: int, present: Assignment, wanted: Assignment) -> None:
    """Set the throttles. Call this before the reassignment, so that no fetch is unthrottled."""
    brokers = {id for plan in (present, wanted) for replicas in plan.values() for id in replicas}
    changes = {
        ConfigResource(ResourceType.BROKER, str(id)): [
            ConfigChange.set(name, bytes_per_second) for name in RATES
        ]
        for id in sorted(brokers)
    }
    leaders: dict[str, list[str]] = defaultdict(list)
    followers: dict[str, list[str]] = defaultdict(list)
    for key, target in wanted.items():
        now = present.get(key, ())
        leaders[key.topic] += [f"{key.partition}:{id}" for id in now]
        followers[key.topic] += [f"{key.partition}:{id}" for id in target if id not in now]
    for topic in leaders:
        changes[ConfigResource(ResourceType.TOPIC, topic)] = [
            ConfigChange.set(LEADERS, ",".join(leaders[topic])),
            ConfigChange.set(FOLLOWERS, ",".join(followers[topic])),
        ]
    admin.alter_configs(changes)


def unlimit(admin: Admin, topics: list[str]) -> list[str]:
    """Remove the throttles of all brokers and of these topics; return Kafka's report lines."""
    brokers = [
        ConfigResource(ResourceType.BROKER, str(id))
        for id in sorted(admin.describe_cluster().nodes)
    ]
    named = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    limits = [*RATES, LEADERS, FOLLOWERS]
    found = admin.describe_configs(*brokers, *named, names=limits, return_errors=True)
    set_here = (ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigSource.DYNAMIC_TOPIC_CONFIG)
    changes = {}
    for resource, entries in found.items():
        ours = [each.name for each in entries.values() if each.source in set_here]
        if ours:
            changes[resource] = [ConfigChange.delete(name) for name in ours]
    if not changes:
        return []
    admin.alter_configs(changes)
    cleared = [each.name for each in changes if each.type is ResourceType.BROKER]
    lines = [f"Clearing broker-level throttles on brokers {','.join(cleared)}"] if cleared else []
    lines += [
        f"Clearing topic-level throttles on topic {each.name}"
        for each in changes
        if each.type is ResourceType.TOPIC
    ]
    return ["", *lines]
