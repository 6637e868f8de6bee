"""`kafka-consumer-groups` against a broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cli.running import Fail, Run
from tests.integration.groups.requests import join, sync
from tests.raw_client import RawClient

from ottla.base.types import TopicPartition
from ottla.client.admin import Admin, NewTopic
from ottla.testing.broker import BrokerProcess

START_MS = 1_600_000_000_000
RECORDS = 10


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    with Admin(broker.bootstrap) as client:
        yield client


@pytest.fixture
def group(topic: str) -> str:
    return f"group-{topic}"


@pytest.fixture
def filled(admin: Admin, client: RawClient, topic: str, group: str) -> str:
    """Create a topic with two partitions of ten records, one second apart.

    The group has read four records of each."""
    admin.create_topics(NewTopic(topic, 2, configs={"retention.ms": "-1"}))
    for partition in range(2):
        records = [(None, b"v", (), START_MS + 1000 * number) for number in range(RECORDS)]
        assert client.produce(topic, records, partition).error_code == 0
    admin.alter_group_offsets(group, {TopicPartition(topic, each): 4 for each in range(2)})
    return topic


@pytest.fixture
def member(client: RawClient, group: str, topic: str) -> str:
    """Return the ID of the group's only member, to which partition 1 is assigned."""
    joined = join(client, group, group_instance_id="static")
    name = topic.encode()
    assignment = b"\0\1\0\0\0\1" + len(name).to_bytes(2, "big") + name
    assignment += b"\0\0\0\1\0\0\0\1\xff\xff\xff\xff"
    assignments = [{"member_id": joined.member_id, "assignment": assignment}]
    sync(client, group, joined, assignments=assignments, group_instance_id="static")
    member_id: str = joined.member_id
    return member_id


def committed(admin: Admin, group: str) -> list[int]:
    return [each.offset for each in admin.list_group_offsets(group)[group].values()]


def test_lag_is_shown_with_kafkas_columns(run: Run, filled: str, group: str) -> None:
    ran = run("consumer-groups", "--describe", "--group", group)
    assert ran.code == 0
    header, *rows = [line.split() for line in ran.lines]
    assert header == [
        *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"),
        *("CONSUMER-ID", "HOST", "CLIENT-ID"),
    ]
    assert rows == [
        [group, filled, str(partition), "4", "10", "6", "-", "-", "-"] for partition in range(2)
    ]
    assert ran.err == f"Consumer group '{group}' has no active members.\n"


def test_who_reads_what(succeed: Run, filled: str, group: str, member: str) -> None:
    (described,) = succeed("consumer-groups", "--describe", "--group", group, "--json").json[
        "groups"
    ]
    assert described["state"] == "Stable"
    readers = {each["partition"]: each["consumer_id"] for each in described["partitions"]}
    assert readers == {0: None, 1: member}
    assert [each["lag"] for each in described["partitions"]] == [6, 6]
    table = succeed("consumer-groups", "--describe", "--group", group, "--members", "--verbose")
    header, row = (line.split() for line in table.lines)
    assert header[:3] == ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID"]
    assert row[:3] == [group, member, "static"]
    assert f"{filled}:1" in row
    state = succeed("consumer-groups", "--describe", "--group", group, "--state", "--verbose")
    assert state.lines[1].split()[0] == group
    assert "Stable" in state.lines[1]


def test_groups_are_listed_by_state_and_type(
    succeed: Run, fail: Fail, filled: str, group: str
) -> None:
    assert group in succeed("consumer-groups", "--list").lines
    assert [group, "classic", "Empty"] in [
        line.split() for line in succeed("consumer-groups", "--list", "--state", "--type").lines
    ]
    by_state = succeed("consumer-groups", "--list", "--state", "stable,empty", "--json").json
    assert group in [each["group_id"] for each in by_state]
    by_type = succeed("consumer-groups", "--list", "--type", "consumer", "--json").json
    assert group not in [each["group_id"] for each in by_type]
    assert "Unknown states 'asleep'" in fail("consumer-groups", "--list", "--state", "asleep")


def test_all_groups_are_described_together(succeed: Run, filled: str, group: str) -> None:
    found = succeed("consumer-groups", "--describe", "--all-groups", "--json").json
    assert group in [each["group_id"] for each in found["groups"]]
    assert found["errors"] == {}


@pytest.mark.parametrize(
    ("target", "offset"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 10),
        (["--to-current"], 4),
        (["--to-offset", "7"], 7),
        (["--to-offset", "99"], 10),
        (["--shift-by", "-3"], 1),
        (["--shift-by", "-30"], 0),
        (["--shift-by", "5"], 9),
        (["--to-datetime", "2020-09-13T12:26:43.000"], 3),
        (["--to-datetime", "2020-09-13T14:26:43.001+02:00"], 4),
        (["--to-datetime", "2030-01-01T00:00:00"], 10),
        (["--by-duration", "PT1H"], 10),
        (["--by-duration", "P36500D"], 0),
    ],
)
def test_offsets_are_reset_in_every_form(
    run: Run, admin: Admin, filled: str, group: str, target: list[str], offset: int
) -> None:
    reset = ["consumer-groups", "--reset-offsets", "--group", group, "--topic", filled, *target]
    planned = run(*reset)
    assert planned.code == 0
    assert [line.split() for line in planned.lines] == [
        ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"],
        *([group, filled, str(partition), str(offset)] for partition in range(2)),
    ]
    assert "Dry run: no offsets were changed." in planned.err
    assert committed(admin, group) == [4, 4]
    assert run(*reset, "--execute").lines == planned.lines
    assert committed(admin, group) == [offset, offset]


def test_some_partitions_and_all_topics(
    succeed: Run, admin: Admin, filled: str, group: str
) -> None:
    reset = ["consumer-groups", "--reset-offsets", "--group", group, "--execute"]
    done = succeed(*reset, "--topic", f"{filled}:1", "--to-earliest", "--json").json
    assert done == {
        "executed": True,
        "offsets": [{"group": group, "topic": filled, "partition": 1, "new_offset": 0}],
        "errors": {},
    }
    assert committed(admin, group) == [4, 0]
    succeed(*reset, "--all-topics", "--to-latest")
    assert committed(admin, group) == [10, 10]


def test_a_plan_is_exported_and_followed(
    succeed: Run, fail: Fail, admin: Admin, filled: str, group: str, tmp_path: Path
) -> None:
    reset = ["consumer-groups", "--reset-offsets", "--group", group]
    exported = succeed(*reset, "--topic", filled, "--to-offset", "6", "--export")
    assert exported.out == f"{filled},0,6\n{filled},1,6\n"
    plan = tmp_path / "plan.csv"
    plan.write_text(exported.out)
    succeed(*reset, "--from-file", str(plan), "--execute")
    assert committed(admin, group) == [6, 6]
    plan.write_text("nonsense\n")
    assert "Line 1 of" in fail(*reset, "--from-file", str(plan))
    assert "Cannot read" in fail(*reset, "--from-file", str(tmp_path / "none"))


def test_a_group_that_does_not_exist_yet_can_be_given_offsets(
    succeed: Run, admin: Admin, filled: str
) -> None:
    reset = ["consumer-groups", "--reset-offsets", "--group", f"new-{filled}", "--topic", filled]
    succeed(*reset, "--to-earliest", "--execute")
    assert committed(admin, f"new-{filled}") == [0, 0]


def test_a_group_with_members_is_left_alone(
    fail: Fail, admin: Admin, filled: str, group: str, member: str
) -> None:
    reset = ["consumer-groups", "--reset-offsets", "--group", group, "--topic", filled]
    assert "inactive" in fail(*reset, "--to-earliest", "--execute")
    assert committed(admin, group) == [4, 4]
    assert "has active members" in fail("consumer-groups", "--delete", "--group", group)


def test_offsets_and_groups_are_deleted(
    succeed: Run, run: Run, fail: Fail, admin: Admin, filled: str, group: str
) -> None:
    deleted = succeed(
        "consumer-groups", "--delete-offsets", "--group", group, "--topic", f"{filled}:0"
    )
    assert deleted.lines[1].split() == [filled, "0", "Successful"]
    assert list(admin.list_group_offsets(group)[group]) == [TopicPartition(filled, 1)]
    partly = run("consumer-groups", "--delete", "--group", group, "--group", "nobody")
    assert partly.code == 1
    assert f"('{group}') was successful" in partly.out
    assert "nobody" in partly.err
    assert f"Group '{group}' does not exist" in fail(
        "consumer-groups", "--describe", "--group", group
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--list", "--describe"], "exactly one"),
        (["--describe"], "--describe requires either --group or --all-groups"),
        (["--describe", "--group", "g", "--members", "--state"], "one of --offsets"),
        (
            ["--reset-offsets", "--group", "g", "--topic", "t"],
            "requires exactly one of --to-earliest",
        ),
        (["--reset-offsets", "--group", "g", "--to-latest"], "--topic or --all-topics"),
        (
            ["--reset-offsets", "--group", "g", "--topic", "t", "--to-latest", "--to-earliest"],
            "requires exactly one of --to-earliest",
        ),
        (
            ["--reset-offsets", "--group", "g", "--topic", "t", "--to-datetime", "soon"],
            "'soon' is not a valid date and time",
        ),
        (
            ["--describe", "--group", "g", "--execute"],
            "--execute can only be used with --reset-offsets",
        ),
        (
            ["--delete", "--group", "g", "--topic", "t"],
            "--topic and --all-topics can only be used with --reset-offsets",
        ),
        (["--delete-offsets", "--group", "g"], "a --topic"),
        (["--list", "--group", "g"], "Use --describe with --group"),
    ],
)
def test_wrong_arguments_are_one_sentence(fail: Fail, arguments: list[str], message: str) -> None:
    start = time.monotonic()
    assert message in fail("consumer-groups", *arguments)
    assert time.monotonic() - start < 5


def test_an_unknown_topic_is_named(fail: Fail, filled: str, group: str) -> None:
    reset = ["consumer-groups", "--reset-offsets", "--group", group, "--to-earliest", "--topic"]
    assert "Topic 'missing' does not exist" in fail(*reset, "missing")
    assert "no partition 7" in fail(*reset, f"{filled}:7")
