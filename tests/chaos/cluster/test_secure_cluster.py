"""A cluster with TLS and SASL everywhere, whose servers, certificates and users change under load.

The clients use SASL_SSL with SCRAM-SHA-512: two idempotent producers, two transactional copiers, a
consumer group of two clients, and strangers that must be refused. Meanwhile leaders are killed,
partitions are moved, certificates and finally the authority are replaced, and a user gets new
passwords. Every session must be authenticated again after five seconds.

In the end, every acknowledged record is there once and in order, transactions are visible as a
whole or not at all, and no client has seen an error."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.chaos.cluster.authorities import Authority, replace
from tests.chaos.cluster.secure_cluster import (
    LISTENERS,
    PASSWORDS,
    PATIENCE_S,
    ZOOKEEPER_PASSWORD,
    SecureCluster,
    SecureZooKeeper,
)
from tests.chaos.cluster.secure_load import (
    Complaints,
    ConfluentCopier,
    ConfluentLoad,
    ConfluentMember,
    Copier,
    Member,
    OttlaCopier,
    OttlaLoad,
    OttlaMember,
    Place,
    Strangers,
)
from tests.integration.cluster.cluster_of_processes import wait_for
from tests.integration.cluster.load import Load

from ottla import Admin, ScramMechanism, TopicPartition, UserScramCredentialUpsertion
from ottla.base.errors import UserError
from ottla.net.connection import Connection
from ottla.net.errors import AuthenticationFailed
from ottla.wire import rpc

PARTITIONS = 3
POLL_S = 0.1
ROUNDS = 5
LOADS = {"confluent": "by-confluent", "ottla": "by-ottla"}
"""The topic of each producer."""
COPIES = {"confluent": "copied-by-confluent", "ottla": "copied-by-ottla"}
CAROLS = "by-carol"


class Scene:
    """The cluster, its clients, and counts of what has happened."""

    def __init__(self, home: Path) -> None:
        self.first_authority = self.authority = Authority("first authority")
        self.next_authority = Authority("second authority")
        self.counts: Counter[str] = Counter()
        self.seconds: dict[str, float] = defaultdict(float)
        """Time that the events of each kind have taken."""
        self.events: list[tuple[str, float]] = []
        """Each event, and when it began."""
        self.zookeeper = SecureZooKeeper(home / "zookeeper", self.authority)
        self.cluster = SecureCluster(home / "cluster", self.zookeeper, self.authority)
        # librdkafka loads the file only once, so its clients trust both authorities from the start.
        both = self.authority.certificate + self.next_authority.certificate
        replace(self.cluster.trusted_by_clients, both)
        self.strangers = Strangers(self.cluster, self.zookeeper, home)
        self.complaints, self.carols_complaints = Complaints(), Complaints()
        self.loads: dict[str, Load] = {}
        self.copiers: dict[str, Copier] = {}
        self.members: list[Member] = []
        self._carol: ConfluentLoad | None = None
        self._carols_password = PASSWORDS["carol"]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start the servers, and stop them in the end."""
        try:
            try:
                self.zookeeper.start()
            except UserError as error:
                if "was not found" in str(error):
                    pytest.skip(str(error))
                raise
            self.cluster.format()
            self.cluster.start()
            self.cluster.heal()
            yield
        finally:
            self.cluster.close()
            self.zookeeper.member.kill()

    @contextmanager
    def under_load(self) -> Iterator[None]:
        """Start the clients. In the end, stop the producers, and the others when they are done."""
        cluster = self.cluster
        for topic in (*LOADS.values(), *COPIES.values(), CAROLS):
            cluster.create_topic(topic, partitions=PARTITIONS)
        kinds = {"confluent": ConfluentLoad, "ottla": OttlaLoad}
        settings = {**cluster.librdkafka("alice"), "delivery_timeout_ms": 120_000}
        for client, topic in LOADS.items():
            own = {} if client == "ottla" else {"error_cb": self.complaints}
            load = kinds[client](cluster.bootstrap, topic, PARTITIONS, **settings, **own)
            self.loads[client] = load
        self.copiers = {
            "ottla": OttlaCopier(cluster, "ottla", LOADS["confluent"], COPIES["ottla"]),
            "confluent": ConfluentCopier(cluster, "confluent", LOADS["ottla"], COPIES["confluent"]),
        }
        topics = [*LOADS.values(), *COPIES.values()]
        self.members = [
            OttlaMember(cluster, "ottla", topics),
            ConfluentMember(cluster, "confluent", topics),
        ]
        settings |= {"sasl.username": "carol", "sasl.password": self._carols_password}
        self._carol = ConfluentLoad(
            cluster.bootstrap, CAROLS, PARTITIONS, error_cb=self.carols_complaints, **settings
        )
        with ExitStack() as readers:
            for worker in (self.strangers, *self.copiers.values(), *self.members):
                readers.enter_context(worker)
            with ExitStack() as writers:
                for load in (*self.loads.values(), self._carol):
                    writers.enter_context(load)
                self.wait_for_progress()
                yield
                self.wait_for_progress()
            wait_for(self._is_copied, "copies of all records", PATIENCE_S)
            wait_for(self._is_read, "group that has read all records", PATIENCE_S)

    def wait_for_progress(self) -> None:
        """Wait until every producer has an acknowledgement, and every copier a transaction."""
        now = time.monotonic()
        assert self._carol is not None
        for load in (*self.loads.values(), self._carol):
            for partition in range(PARTITIONS):
                load.next_acknowledgement(partition, now, PATIENCE_S)
        for copier in self.copiers.values():
            count = len(copier.committed) + 1
            wait_for(lambda: self._has_committed(copier, count), "transaction", PATIENCE_S)  # noqa: B023
        for worker in (*self.copiers.values(), *self.members):
            worker.check_failure()

    def _has_committed(self, copier: Copier, count: int) -> bool:
        return copier.failure is not None or len(copier.committed) >= count

    def _is_copied(self) -> bool:
        pairs = [("confluent", "ottla"), ("ottla", "confluent")]
        return all(
            self.copiers[copier].failure is not None
            or self.copiers[copier].committed.total() == _acknowledged(self.loads[load])
            for load, copier in pairs
        )

    def _is_read(self) -> bool:
        """Return whether the group has received every record."""
        received = {place for member in self.members for place in list(member.received)}
        written = sum(map(_acknowledged, self.loads.values()))
        copied = sum(each.committed.total() for each in self.copiers.values())
        failed = any(each.failure is not None for each in self.members)
        return failed or len(received) >= written + copied

    # -------------------------------------------------------------------------------- events

    @contextmanager
    def _timed(self, event: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.counts[event] += 1
        self.seconds[event] += time.monotonic() - began
        self.events.append((event, began))

    def kill_a_leader(self, partition: int = 0) -> None:
        """Kill a leader, wait until its partitions have others, and start it again."""
        with self._timed("kills"):
            victim = self.cluster.leader(LOADS["confluent"], partition)
            self.cluster.brokers[victim].kill()
            self.wait_for_progress()
            self.cluster.heal()

    def move_partitions(self, victim: int) -> None:
        """Move all replicas away from a broker, and back. The broker copies everything again."""
        first, second = (id for id in self.cluster.brokers if id != victim)
        with self._timed("moves of all partitions"):
            self._reassign([[first, second], [second, first], [first, second]])
            self._reassign(
                [[victim, first, second], [first, victim, second], [second, first, victim]]
            )

    def _reassign(self, replicas: list[list[int]]) -> None:
        targets = {
            TopicPartition(topic, index): each
            for topic in (*LOADS.values(), *COPIES.values())
            for index, each in enumerate(replicas)
        }
        with Admin(self.cluster.bootstrap, profile=self.cluster.librdkafka("alice")) as admin:
            admin.alter_partition_reassignments(targets)
        wait_for(lambda: self._are_at(targets), "end of the moves", PATIENCE_S)

    def _are_at(self, targets: dict[TopicPartition, list[int]]) -> bool:
        views = {topic: self.cluster.partitions(topic) for topic in {key.topic for key in targets}}
        return all(
            list(views[key.topic][key.partition].replicas) == replicas
            and sorted(views[key.topic][key.partition].isr) == sorted(replicas)
            for key, replicas in targets.items()
        )

    def renew_certificates(self, *, slowly: bool = False) -> None:
        """Renew the certificates of ZooKeeper and of one broker after the other."""
        with self._timed("renewals of ZooKeeper"):
            self.zookeeper.renew(self.authority)
        for id in self.cluster.brokers:
            self.renew_certificate(id, slowly=slowly)

    def renew_certificate(self, id: int, *, slowly: bool = False) -> None:
        """Renew the certificate of a broker."""
        with self._timed("renewals of brokers"):
            self.cluster.renew(id, slowly=slowly)
            self.wait_for_progress()

    def replace_the_authority(self) -> None:
        """Replace the authority. In between, both are trusted."""
        cluster, zookeeper = self.cluster, self.zookeeper
        old, new = self.authority, self.next_authority
        cluster.trust(old, new)
        zookeeper.trust(old, new)
        wait_for(lambda: self._zookeeper_admits(new), "ZooKeeper with both", PATIENCE_S)
        self.authority = cluster.signed_by = new
        self.renew_certificates()
        cluster.trust(new)
        zookeeper.trust(new)
        replace(cluster.trusted_by_clients, new.certificate)
        wait_for(lambda: not self._zookeeper_admits(old), "ZooKeeper with the new", PATIENCE_S)
        with self._timed("restarts of ZooKeeper"):
            # The brokers connect to it again, with their new certificates.
            zookeeper.restart()
            self.wait_for_progress()
            cluster.heal()
        self.counts["authorities replaced"] += 1

    def _zookeeper_admits(self, authority: Authority) -> bool:
        store = self.cluster.home / "visitor.pem"
        replace(store, authority.sign("broker-1"))
        return self.zookeeper.admits(store)

    def change_the_password(self, number: int) -> None:
        """Give carol another password. Open connections stay, and new ones need the new one."""
        old, new = self._carols_password, f"carol-secret-{number}"
        assert self._carol is not None
        with self._timed("password changes"):
            asyncio.run(self._change_password(old, new))
            self.wait_for_progress()

    async def _change_password(self, old: str, new: str) -> None:
        cluster = self.cluster
        lasting = {
            id: await cluster.opened(id, "carol", old, listener="LASTING") for id in cluster.brokers
        }
        limited = {id: await cluster.opened(id, "carol", old) for id in cluster.brokers}
        try:
            await asyncio.to_thread(self._store_password, new)
            for id in cluster.brokers:
                await self._until_refused(id, old)
                (await cluster.opened(id, "carol", new)).close()
                await lasting[id].request(rpc.metadata(topics=[]), PATIENCE_S)
            for id in cluster.brokers:
                await _until_rejected(limited[id])
                await lasting[id].request(rpc.metadata(topics=[]), PATIENCE_S)
        finally:
            for each in (*lasting.values(), *limited.values()):
                each.close()

    def _store_password(self, new: str) -> None:
        assert self._carol is not None
        with Admin(self.cluster.bootstrap, profile=self.cluster.librdkafka("alice")) as admin:
            change = UserScramCredentialUpsertion("carol", ScramMechanism.SCRAM_SHA_512, new)
            admin.alter_user_scram_credentials(change)
        self._carol.set_credentials("carol", new)
        self._carols_password = new

    async def _until_refused(self, id: int, password: str) -> None:
        """Wait until a broker, which may learn of the change later, refuses a password."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    (await self.cluster.opened(id, "carol", password)).close()
                except AuthenticationFailed:
                    return

    # -------------------------------------------------------------------------------- checks

    def check(self) -> None:
        """Check what clients and brokers have seen, after all clients have ended."""
        for worker in (self.strangers, *self.copiers.values(), *self.members):
            worker.check()
        final = {topic: self.cluster.read_all(topic) for topic in self._all_topics()}
        for client, load in self.loads.items():
            load.assert_all_there(final[LOADS[client]])
        assert self._carol is not None
        self._carol.assert_all_there(final[CAROLS])
        assert not self.complaints.found, self.complaints.found[:3]
        sources = {"ottla": LOADS["confluent"], "confluent": LOADS["ottla"]}
        for client, copier in self.copiers.items():
            copier.assert_all_copied(final[sources[client]], final[COPIES[client]])
            assert copier.aborted
        for member in self.members:
            member.assert_stable(final)
        self._check_group(final)
        self._check_strangers()
        self._check_logs()

    def _all_topics(self) -> list[str]:
        return [*LOADS.values(), *COPIES.values(), CAROLS]

    def _check_group(self, final: dict[str, dict[int, list[bytes]]]) -> None:
        """Check that the group has received every record, and no two values at one offset."""
        received: dict[Place, bytes] = {}
        for member in self.members:
            for place, value in member.received.items():
                assert received.setdefault(place, value) == value, f"{place} has two values"
        for topic in (*LOADS.values(), *COPIES.values()):
            read = Counter(value for place, value in received.items() if place.topic == topic)
            assert read == Counter(value for each in final[topic].values() for value in each)

    def _check_strangers(self) -> None:
        assert len(self.strangers.refused) == 6, self.strangers.refused
        for id in self.cluster.brokers:
            assert self.cluster.accepts(id, self.authority)
            others = {self.first_authority, self.next_authority} - {self.authority}
            assert not any(self.cluster.accepts(id, each) for each in others)

    def _check_logs(self) -> None:
        member = (self.zookeeper.member.directory / "member.log").read_text("utf-8", "replace")
        secrets = [*PASSWORDS.values(), ZOOKEEPER_PASSWORD, self._carols_password]
        for id in self.cluster.brokers:
            log = self.cluster.whole_log(id)
            at = log.find("Traceback")
            assert at < 0, log[max(at - 2000, 0) : at + 4000]
            assert not [each for each in secrets if each in log or each in member]

    def report(self, duration_s: float) -> None:
        """Print what has happened."""
        reauthentications = self.cluster.reauthentications()
        counts = {
            **self.counts,
            **{f"re-authentications on {each}": reauthentications[each] for each in LISTENERS},
            "records": sum(
                len(each) for load in self.loads.values() for each in load.acknowledged.values()
            ),
            "transactions": sum(len(each.committed) for each in self.copiers.values()),
            "aborted on purpose": sum(len(each.aborted) for each in self.copiers.values()),
            "refused strangers": self.strangers.refused.total(),
            "sessions that ended": sum(
                self.cluster.whole_log(id).count("before its session ended")
                for id in self.cluster.brokers
            ),
        }
        print(f"\n{duration_s:.0f} s, {', '.join(f'{name}: {n}' for name, n in counts.items())}")
        print(", ".join(f"{event}: {each:.1f} s" for event, each in self.seconds.items()))
        for client, load in self.loads.items():
            pause_s, ended_at = load.longest_stall()
            during = [event for event, began in self.events if began < ended_at][-1:]
            print(f"longest pause of the producer of {client}: {pause_s:.2f} s, {during}")


def _acknowledged(load: Load) -> int:
    return sum(map(len, load.acknowledged.values()))


async def _until_rejected(connection: Connection) -> None:
    """Use a connection until it must authenticate again, and is rejected."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await connection.request(rpc.metadata(topics=[]), PATIENCE_S)
            except AuthenticationFailed:
                return
            await asyncio.sleep(POLL_S)


@pytest.mark.chaos
@pytest.mark.timeout(400)
def test_nothing_is_lost_while_everything_changes_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with scene.running():
        began = time.monotonic()
        with scene.under_load():
            scene.kill_a_leader()
            scene.move_partitions(1)
            scene.renew_certificate(2)
            scene.change_the_password(1)
        scene.report(time.monotonic() - began)
        scene.check()


@pytest.mark.chaos
@pytest.mark.timeout(3_600)
def test_nothing_is_lost_while_everything_changes_again_and_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with scene.running():
        began = time.monotonic()
        with scene.under_load():
            for number in range(ROUNDS):
                scene.kill_a_leader(number % PARTITIONS)
                scene.move_partitions(number % len(scene.cluster.brokers) + 1)
                scene.renew_certificates(slowly=number % 2 == 1)
                scene.change_the_password(number)
                if number == ROUNDS // 2:
                    scene.replace_the_authority()
        scene.report(time.monotonic() - began)
        scene.check()
