"""The open transactions of a cluster, as its coordinators know them.

A transaction is known to the broker that leads its partition of `__transaction_state`, and to
nobody while that partition changes hands. So a list counts only if every partition had a leader,
all of them were asked, and none moved meanwhile; else it is made again, as when a broker dies that
was asked. Where the topic may not be seen, all brokers are asked, and what moves meanwhile is
missed."""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.client.admin.transactions import TransactionListing, list_transactions
from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError, error_for

STATE_TOPIC = "__transaction_state"
ONGOING = "Ongoing"


async def open_transactions(cluster: Cluster) -> dict[str, TransactionListing]:
    """By transactional id."""
    return await cluster.retrying(lambda: _listed(cluster), what="listing transactions")


async def _listed(cluster: Cluster) -> dict[str, TransactionListing]:
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
            raise _moved() from error
        raise
    if before != await _coordinators(cluster):
        raise _moved()
    return listed


async def _coordinators(cluster: Cluster) -> dict[int, int]:
    """Partition -> its leader."""
    metadata = await cluster.refresh([STATE_TOPIC])
    topic = metadata.topics.get(STATE_TOPIC)
    if topic is None:
        return dict(enumerate(sorted(metadata.nodes)))
    found = {each: metadata.leader(STATE_TOPIC, each) for each in range(topic.partition_count)}
    if not set(found.values()) <= set(metadata.nodes):
        raise _moved()
    return found


def _moved() -> ClientError:
    return error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE)
