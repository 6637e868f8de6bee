"""The groups of a shard, of both protocols, as built from records.

A group that only has offsets is an empty classic group without a protocol type; the first member
that joins determines its protocol. Records of one protocol replace a group of the other: to change
a group's protocol, write the tombstones of the old group before the records of the new one.
"""

from __future__ import annotations

from typing import TypeAlias

from ottla.core.group.classic import ClassicGroup
from ottla.core.group.consumer_group import ConsumerGroup
from ottla.core.group.consumer_records import ConsumerRecord, GroupEpochRecord
from ottla.core.group.records import GroupRecord

Group: TypeAlias = ClassicGroup | ConsumerGroup


class Groups(dict[str, Group]):
    def classic(self, group_id: str) -> ClassicGroup | None:
        group = self.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def consumer(self, group_id: str) -> ConsumerGroup | None:
        group = self.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    # -------------------------------------------------------------------------------- applying

    def apply_classic(self, record: GroupRecord) -> None:
        group = self.classic(record.group_id)
        if record.value is None:
            if group is not None:
                del self[record.group_id]
            return
        if group is None:
            group = self[record.group_id] = ClassicGroup(record.group_id)
        group.restore(record.value)

    def apply_consumer(self, record: ConsumerRecord) -> None:
        group = self.consumer(record.group_id)
        if group is None:
            if record.value is None:
                return
            group = self[record.group_id] = ConsumerGroup(record.group_id)
        group.apply(record)
        if isinstance(record, GroupEpochRecord) and record.value is None:
            del self[record.group_id]
