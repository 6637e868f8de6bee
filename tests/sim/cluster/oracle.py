"""Invariants of a cluster, checked from outside after every step of every broker.

For each watched partition, the oracle records everything that was ever committed: (first offset,
epoch, checksum) of each batch below a leader's high watermark. Violations, by the numbers of the
design:

    1  a leader starts without a committed batch
    2  two brokers, or two incarnations of one, lead in the same epoch
    3  an offset is committed twice, with different contents
    4  a version or an epoch goes back; a leader was not in the ISR before
    5  a member of the ISR lacks a committed batch
    6  a broker is declared dead while it still trusts its lease
    7  after a quiet period, an image differs from the tree (`wrong_image`)
    8  a broker that is not the controller changes a leader
    9  a producer ID is allocated twice (`producer_id_given`)

The world checks the tenth: every partition has a leader soon after the cluster has healed."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ottla.base.cluster import NO_LEADER, BrokerRegistration, PartitionState
from ottla.base.metadata import Node
from ottla.base.types import TopicPartition
from ottla.broker.partition import Partition
from ottla.core.replication.leadership import Leadership
from ottla.metadata import tree as paths
from ottla.storage.log import Log
from ottla.testing.simulation.cluster import Machine, SimulatedCluster
from ottla.testing.simulation.scheduler import Process
from ottla.testing.simulation.zookeeper import Tree, ZNode
from ottla.wire.records.batch import iter_headers

ROOT = "/ottla/tree"
TOPICS = f"{ROOT}{paths.TOPICS}"
CONTROLLER = f"{ROOT}{paths.CONTROLLER_LEADER}"


class Batch(NamedTuple):
    base_offset: int
    next_offset: int
    epoch: int
    crc: int


def batches(log: Log, first: int, end: int) -> list[Batch]:
    found: list[Batch] = []
    offset = first
    while offset < end:
        read = log.read(offset, 1 << 20, end, at_least_one=True, wait=True)
        if read.next_offset == offset:
            break
        found += [
            Batch(each.base_offset, each.next_offset, each.leader_epoch, each.crc)
            for each in iter_headers(read.records)
        ]
        offset = read.next_offset
    return found


class History:
    """Committed batches of one partition, and its leaders."""

    def __init__(self) -> None:
        self.committed: dict[int, Batch] = {}
        self.end = 0
        self.ends: dict[int, int] = {}
        """Leader epoch -> offset up to which its leader has committed."""
        self.last: Batch | None = None
        self.leaders: dict[int, tuple[int, int]] = {}
        """Leader epoch -> (broker, incarnation)."""

    def end_before(self, epoch: int) -> int:
        """Return the offset up to which a leader of this epoch must hold the log.

        A broker may learn of its election after later leaders have already committed records. It
        does not have to hold those."""
        return max((end for led, end in self.ends.items() if led < epoch), default=0)


class Seen:
    """Last observed state of a broker that leads a partition."""

    __slots__ = ("high_watermark", "leadership")

    def __init__(self, leadership: Leadership, high_watermark: int) -> None:
        self.leadership = leadership
        self.high_watermark = high_watermark


class Oracle:
    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._histories: dict[TopicPartition, History] = {}
        self._machines = {each.process: each for each in cluster.machines.values()}
        self._seen: dict[Process, dict[TopicPartition, Seen]] = {
            process: {} for process in self._machines
        }
        self._judged: dict[TopicPartition, tuple[int, int]] = {}
        """Last leader that was declared dead, and its epoch."""
        self._violation: AssertionError | None = None
        """Violation found in the tree, raised in the next step.

        It is found in the middle of a step, where an exception would go unnoticed."""
        self._producer_ids: set[int] = set()
        self._topic_paths: dict[str, str] = {}
        cluster.scheduler.after_step.append(self._stepped)
        cluster.zookeeper.on_commit.append(self._committed)

    def watch(self, topic: str, partitions: int) -> None:
        for index in range(partitions):
            self._histories[TopicPartition(topic, index)] = History()

    def history(self, key: TopicPartition) -> History:
        return self._histories[key]

    # -------------------------------------------------------------------------------- brokers

    def _stepped(self, process: Process) -> None:
        if self._violation is not None:
            raise self._violation
        machine = self._machines.get(process)
        if machine is None or machine.broker is None:
            return
        partitions, all_seen = machine.broker.partitions, self._seen[process]
        for key in self._histories:
            partition = partitions.get(key)
            if partition is None or (leadership := partition.leadership) is None:
                continue
            seen = all_seen.get(key)
            if seen is None or seen.leadership is not leadership:
                # The high watermark may have moved in the same step.
                end = self._histories[key].end
                seen = all_seen[key] = Seen(leadership, min(end, leadership.high_watermark))
                self._leader_began(machine, partition, leadership)
            if leadership.high_watermark > seen.high_watermark:
                first, seen.high_watermark = seen.high_watermark, leadership.high_watermark
                epoch = leadership.leader_epoch
                self._watermark_moved(machine, partition, epoch, first, leadership.high_watermark)
            if self._judged:
                judged = self._judged.get(key)
                if judged == (machine.number, leadership.leader_epoch):
                    self._check_lease(key, machine, leadership.leader_epoch)

    def _leader_began(self, machine: Machine, partition: Partition, leadership: Leadership) -> None:
        key, epoch = partition.key, leadership.leader_epoch
        history = self._histories[key]
        me = (machine.number, leadership.incarnation)
        assert history.leaders.setdefault(epoch, me) == me, (
            f"2: {key}: {history.leaders[epoch]} and {me} lead in epoch {epoch}"
        )
        before = history.end_before(epoch)
        self.check_holds(key, partition.log, before, f"1: {machine.number}, leader {epoch}")

    def check_holds(self, key: TopicPartition, log: Log, end: int, who: str) -> None:
        """Raise AssertionError unless the log holds every committed batch below `end`."""
        history = self._histories[key]
        assert log.log_end_offset >= end, f"{who} of {key} ends at {log.log_end_offset}, not {end}"
        for batch in batches(log, log.log_start_offset, end):
            known = history.committed.get(batch.base_offset)
            assert known is None or known == batch, f"{who} of {key} has {batch}, not {known}"

    def _watermark_moved(
        self, machine: Machine, partition: Partition, epoch: int, first: int, end: int
    ) -> None:
        history, key = self._histories[partition.key], partition.key
        history.ends[epoch] = end
        for batch in batches(partition.log, first, end):
            known = history.committed.setdefault(batch.base_offset, batch)
            assert known == batch, f"3: {key}: {machine.number} commits {batch}, known is {known}"
            if history.last is None or batch.base_offset > history.last.base_offset:
                history.last = batch
        if end <= history.end:
            return
        history.end = end
        state = self.state(key)
        if state is not None:
            self._check_isr(key, state)

    def _check_isr(self, key: TopicPartition, state: PartitionState) -> None:
        """Check that every member of the ISR holds the last committed batch.

        By the rules for epochs, a log that holds that batch also holds all the earlier ones."""
        history, last = self._histories[key], self._histories[key].last
        for member, incarnation in zip(state.isr, state.isr_incarnations, strict=True):
            machine = self._cluster.machines[member]
            broker = machine.broker or machine.last_broker
            partition = None if broker is None else broker.partitions.get(key)
            if partition is None or not self._continues(machine, incarnation):
                continue
            log = partition.log
            assert log.log_end_offset >= history.end, (
                f"5: {member} is in the ISR of {key} and ends at {log.log_end_offset}, "
                f"committed is {history.end}"
            )
            if last is not None and machine.broker is not None:
                found = batches(log, last.base_offset, history.end)[:1]
                assert found == [last], f"5: {member} in the ISR of {key} has {found}, not {last}"

    def _continues(self, machine: Machine, incarnation: int) -> bool:
        """Return whether the machine still holds the data it had as this incarnation."""
        if not machine.is_intact:
            return False
        node = self._cluster.zookeeper.tree.get(f"{ROOT}{paths.registration_path(machine.number)}")
        if node is None:
            return False
        return registration_of(machine.number, as_node(node)).continues(incarnation)

    def _check_lease(self, key: TopicPartition, machine: Machine, epoch: int) -> None:
        cluster = None if machine.broker is None else machine.broker.cluster
        assert cluster is None or not cluster.has_lease, (
            f"6: {machine.number} was replaced as leader {epoch} of {key} and has a lease"
        )

    # ----------------------------------------------------------------------------------- the tree

    def state(self, key: TopicPartition) -> PartitionState | None:
        """Return the partition's state in the tree."""
        tree = self._cluster.zookeeper.tree
        if key.topic not in self._topic_paths:
            self._topic_paths |= {
                paths.decode_topic(as_node(node)).name: path
                for path, node in tree.items()
                if path.startswith(TOPICS) and path.count("/") == TOPICS.count("/")
            }
        found = tree.get(f"{self._topic_paths.get(key.topic)}/{key.partition}")
        return None if found is None else paths.decode_partition(as_node(found))

    def states(self) -> dict[TopicPartition, PartitionState]:
        """Return the states of all partitions in the tree."""
        tree = self._cluster.zookeeper.tree
        found = {}
        for path, node in tree.items():
            topic_path, _, index = path.rpartition("/")
            if path.startswith(TOPICS) and topic_path + "/" != TOPICS:
                name = paths.decode_topic(as_node(tree[topic_path])).name
                key = TopicPartition(name, int(index))
                found[key] = paths.decode_partition(as_node(node))
        return found

    def has_eligible(self, state: PartitionState, without: int | None = None) -> bool:
        """Return whether a member of the ISR has all committed records and could lead."""
        return any(
            member != without and self._continues(self._cluster.machines[member], incarnation)
            for member, incarnation in zip(state.isr, state.isr_incarnations, strict=True)
        )

    def _committed(self, before: Tree, now: Tree, session_id: int) -> None:
        for path, node in now.items():
            old = before.get(path)
            if old is node or not path.startswith(TOPICS):
                continue
            topic_path, _, index = path.rpartition("/")
            if old is None or topic_path + "/" == TOPICS:
                continue
            name = paths.decode_topic(as_node(now[topic_path])).name
            key = TopicPartition(name, int(index))
            old_state = paths.decode_partition(as_node(old))
            new_state = paths.decode_partition(as_node(node))
            try:
                self._partition_changed(key, old_state, new_state, before, session_id)
            except AssertionError as violation:
                self._violation = violation

    def _partition_changed(
        self,
        key: TopicPartition,
        old: PartitionState,
        new: PartitionState,
        before: Tree,
        session_id: int,
    ) -> None:
        assert new.partition_epoch > old.partition_epoch, f"4: {key} goes back to {new}"
        assert new.leader_epoch >= old.leader_epoch, f"4: {key} goes back to {new}"
        if new.leader_epoch > old.leader_epoch or new.leader != old.leader:
            assert new.leader_epoch > old.leader_epoch, f"4: {key}: {old} and {new} in one epoch"
            assert new.leader in (NO_LEADER, *old.isr), f"4: {key}: {new} was elected from {old}"
            owners = self._controllers_sessions(before)
            assert session_id in owners, (
                f"8: {key} is changed to {new} by session {session_id}, the controller's: {owners}"
            )
            if old.leader != NO_LEADER and old.leader not in new.isr:
                self._judged[key] = (old.leader, old.leader_epoch)
                self._check_old_leader(key, old)
        if key in self._histories and new.isr:
            self._check_isr(key, new)

    @staticmethod
    def _controllers_sessions(tree: Tree) -> list[int]:
        """Return the sessions under which the controller may act.

        These are the session in which it was elected and, if it died and returned before that
        session ended, its current one, which continues the former."""
        controller = tree.get(CONTROLLER)
        if controller is None:
            return []
        broker_id = paths.decode(as_node(controller))["id"]
        live = tree.get(f"{ROOT}{paths.live_path(broker_id)}")
        return [controller.owner] + ([] if live is None else [live.owner])

    def _check_old_leader(self, key: TopicPartition, old: PartitionState) -> None:
        machine = self._cluster.machines[old.leader]
        partition = None if machine.broker is None else machine.broker.partitions.get(key)
        leadership = None if partition is None else partition.leadership
        if leadership is not None and leadership.leader_epoch == old.leader_epoch:
            self._check_lease(key, machine, old.leader_epoch)

    # ---------------------------------------------------------------- producer IDs and images

    def producer_id_given(self, producer_id: int) -> None:
        assert producer_id not in self._producer_ids, f"9: producer id {producer_id} given twice"
        self._producer_ids.add(producer_id)

    def wrong_image(self) -> str | None:
        """Return the first difference between a broker's image and the tree, or None."""
        for machine in self._cluster.ready:
            assert machine.broker is not None
            for topic in machine.broker.image.topics.values():
                for index, state in enumerate(topic.partitions):
                    known = self.state(TopicPartition(topic.name, index))
                    if state != known:
                        what = f"{topic.name}-{index} as {state}, not {known}"
                        return f"7: {machine.number} knows {what}"
        return None


@lru_cache(maxsize=1024)
def registration_of(number: int, node: Node) -> BrokerRegistration:
    return paths.decode_registration(number, node, fenced=False)


def as_node(node: ZNode) -> Node:
    return Node(node.data, node.version)
