"""The open transactions of a cluster, as its coordinators report them.

Only the leader of a transaction's partition of `__transaction_state` knows the transaction, and no
broker does while that partition changes its leader. So a listing is valid only if every partition
had a leader, all leaders were asked, and none changed meanwhile. Otherwise it is repeated, as it is
when a broker fails. If the client may not see the topic, all brokers are asked instead, and
transactions that move meanwhile are missed."""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.client.admin.transactions import TransactionListing, list_transactions
from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError, error_for

STATE_TOPIC = "__transaction_state"
ONGOING = "Ongoing"


async def open_transactions(cluster: Cluster) -> dict[str, TransactionListing]:
    """Return the open transactions by transactional ID."""
    return await cluster.retrying(lambda: _list_once(cluster), what="listing transactions")


async def _list_once(cluster: Cluster) -> dict[str, TransactionListing]:
    before = await _coordinators(cluster)
    try:
        listed = await list_transactions(
            cluster,
            sorted(set(before.values())),
            states=[ONGOING],
            producer_ids=(),
            longer_than_ms=None,
            pattern=None,
        )
    except ClientError as error:
        if error.code == ErrorCode.BROKER_NOT_AVAILABLE:
            raise _coordinators_moved() from error
        raise
    if before != await _coordinators(cluster):
        raise _coordinators_moved()
    return listed


async def _coordinators(cluster: Cluster) -> dict[int, int]:
    """Return the leader of each partition of the state topic."""
    metadata = await cluster.refresh([STATE_TOPIC])
    topic = metadata.topics.get(STATE_TOPIC)
    if topic is None:
        return dict(enumerate(sorted(metadata.nodes)))
    found = {each: metadata.leader(STATE_TOPIC, each) for each in range(topic.partition_count)}
    if not set(found.values()) <= set(metadata.nodes):
        raise _coordinators_moved()
    return found


def _coordinators_moved() -> ClientError:
    return error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE)
