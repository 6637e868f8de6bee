"""Admin calls for topics, configs and the cluster."""

from __future__ import annotations

import asyncio

import pytest
from tests.raw_client import eventually

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.admin import (
    Admin,
    AsyncAdmin,
    ConfigChange,
    ConfigResource,
    ConfigSource,
    LogDirDescription,
    NewTopic,
    ResourceType,
)
from ottla.client.errors import ClientError, InvalidConfig, UnknownTopic


def of_topic(name: str) -> ConfigResource:
    return ConfigResource(ResourceType.TOPIC, name)


def test_a_topic_comes_and_goes(admin: Admin, topic: str) -> None:
    created = admin.create_topics(NewTopic(topic, 3, 1, {"retention.ms": "1000"}))
    assert created[topic].partitions == 3
    assert created[topic].configs["retention.ms"] == "1000"
    listed = eventually(admin.list_topics, lambda topics: topic in topics)
    assert listed[topic].topic_id == created[topic].topic_id
    described = admin.describe_topics(topic)[topic]
    assert described.topic_id == created[topic].topic_id
    assert [each.partition for each in described.partitions] == [0, 1, 2]
    assert all(each.leader in each.isr for each in described.partitions)
    assert described.replication_factor == 1
    by_id = admin.describe_topics_by_id(described.topic_id or "")
    assert by_id[described.topic_id or ""].name == topic
    admin.delete_topics(topic)
    eventually(admin.list_topics, lambda topics: topic not in topics)


def test_a_name_alone_is_a_topic_with_the_brokers_defaults(admin: Admin, topic: str) -> None:
    assert admin.create_topics(topic)[topic].partitions == 1


def test_a_topic_is_deleted_by_its_id(admin: Admin, topic: str) -> None:
    topic_id = admin.create_topics(topic)[topic].topic_id
    assert topic_id is not None
    assert list(admin.delete_topics_by_id(topic_id)) == [topic_id]
    missing = eventually(
        lambda: admin.describe_topics_by_id(topic_id, return_errors=True),
        lambda described: not described,
    )
    assert isinstance(missing.errors[topic_id], UnknownTopic)


def test_validation_creates_nothing(admin: Admin, topic: str) -> None:
    admin.create_topics(topic, validate_only=True)
    assert topic not in admin.list_topics()


def test_one_failure_is_raised_and_with_errors_asked_for_returned(admin: Admin, topic: str) -> None:
    wrong, right = "no/slash", topic
    with pytest.raises(ClientError, match=wrong) as failure:
        admin.create_topics(wrong, validate_only=True)
    assert failure.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    results = admin.create_topics(wrong, right, return_errors=True)
    assert list(results) == [right]
    assert results.errors[wrong].code is ErrorCode.INVALID_TOPIC_EXCEPTION
    again = admin.create_topics(right, return_errors=True)
    assert again.errors[right].code is ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_topic_that_does_not_exist_is_reported_at_once(admin: Admin, topic: str) -> None:
    for call in (admin.describe_topics, admin.delete_topics):
        with pytest.raises(UnknownTopic, match=topic):
            call(topic)
    with pytest.raises(UnknownTopic, match=topic):
        admin.describe_configs(of_topic(topic))


def test_partitions_are_added_and_never_taken_away(admin: Admin, topic: str) -> None:
    admin.create_topics(NewTopic(topic, 1))
    admin.create_partitions({topic: 4}, validate_only=True)

    def count() -> int:
        described = admin.describe_topics(topic, return_errors=True)
        return len(described[topic].partitions) if described else 0

    assert eventually(count) == 1
    admin.create_partitions({topic: 4})
    eventually(count, lambda partitions: partitions == 4)
    with pytest.raises(ClientError) as failure:
        admin.create_partitions({topic: 2})
    assert failure.value.code is ErrorCode.INVALID_PARTITIONS


def test_a_description_of_many_partitions_comes_in_pages(
    admin: Admin, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ottla.client.admin import topics

    monkeypatch.setattr(topics, "PARTITIONS_PER_PAGE", 2)
    names = [f"{topic}-{number}" for number in range(3)]
    admin.create_topics(*(NewTopic(name, 3) for name in names))
    described = eventually(
        lambda: admin.describe_topics(*names, return_errors=True),
        lambda described: len(described) == len(names),
    )
    assert {name: len(each.partitions) for name, each in described.items()} == dict.fromkeys(
        names, 3
    )


def test_configs_have_their_source(admin: Admin, topic: str) -> None:
    admin.create_topics(NewTopic(topic, configs={"retention.ms": "1000"}))
    found = eventually(
        lambda: admin.describe_configs(
            of_topic(topic),
            include_synonyms=True,
            include_documentation=True,
            return_errors=True,
        )
    )
    entries = found[of_topic(topic)]
    entry = entries["retention.ms"]
    assert (entry.value, entry.source) == ("1000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert not entry.is_default
    assert entry.synonyms[0].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert entries["segment.bytes"].synonyms[-1].source is ConfigSource.DEFAULT_CONFIG
    assert entry.documentation
    assert entries["flush.messages"].is_default
    some = admin.describe_configs(of_topic(topic), names=["flush.ms"])[of_topic(topic)]
    assert list(some) == ["flush.ms"]


def test_configs_are_set_deleted_appended_to_and_subtracted_from(admin: Admin, topic: str) -> None:
    admin.create_topics(topic)

    resource = of_topic(topic)

    def becomes(name: str, value: str) -> None:
        eventually(
            lambda: admin.describe_configs(resource, return_errors=True),
            lambda found: bool(found) and found[resource][name].value == value,
        )

    admin.alter_configs({resource: {"flush.ms": "5", "cleanup.policy": "compact"}})
    becomes("flush.ms", "5")
    becomes("cleanup.policy", "compact")
    admin.alter_configs({resource: [ConfigChange.append("cleanup.policy", "delete")]})
    becomes("cleanup.policy", "compact,delete")
    admin.alter_configs({resource: [ConfigChange.subtract("cleanup.policy", "compact")]})
    becomes("cleanup.policy", "delete")
    admin.alter_configs({resource: {"flush.ms": None}})
    becomes("flush.ms", str(2**63 - 1))
    with pytest.raises(ClientError) as failure:
        admin.alter_configs({resource: {"retention.ms": "long"}})
    assert failure.value.code is ErrorCode.INVALID_CONFIG


def test_configs_of_brokers_their_defaults_and_loggers(admin: Admin) -> None:
    (node,) = admin.describe_cluster().nodes
    broker = ConfigResource(ResourceType.BROKER, str(node))
    everyone = ConfigResource(ResourceType.BROKER, "")
    loggers = ConfigResource(ResourceType.BROKER_LOGGER, str(node))
    admin.alter_configs({everyone: {"log.retention.ms": "123456"}})
    try:
        entry = eventually(
            lambda: admin.describe_configs(broker)[broker]["log.retention.ms"],
            lambda entry: entry.value == "123456",
        )
        assert entry.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        assert "log.retention.ms" in admin.describe_configs(everyone)[everyone]
    finally:
        admin.alter_configs({everyone: {"log.retention.ms": None}})
    assert admin.describe_configs(loggers)[loggers]


def test_configs_of_groups(admin: Admin, group: str) -> None:
    resource = ConfigResource(ResourceType.GROUP, group)
    changed = admin.alter_configs(
        {resource: {"consumer.session.timeout.ms": "50000"}}, return_errors=True
    )
    if changed.errors:
        pytest.skip(f"the broker has none: {changed.errors[resource]}")
    eventually(
        lambda: admin.describe_configs(resource)[resource]["consumer.session.timeout.ms"].value,
        lambda value: value == "50000",
    )
    assert resource in admin.list_config_resources(ResourceType.GROUP)
    admin.alter_configs({resource: {"consumer.session.timeout.ms": None}})


def test_a_broker_that_does_not_exist_is_reported_with_those_that_do(admin: Admin) -> None:
    with pytest.raises(ClientError, match="broker 77 does not exist; the cluster has 1"):
        admin.describe_configs(ConfigResource(ResourceType.BROKER, "77"))
    with pytest.raises(InvalidConfig, match="does not exist: broker IDs are numbers"):
        admin.describe_configs(ConfigResource(ResourceType.BROKER, "first"))


def test_the_cluster_its_features_versions_and_directories(admin: Admin, topic: str) -> None:
    admin.create_topics(NewTopic(topic, 2))
    cluster = admin.describe_cluster()
    assert cluster.cluster_id
    assert cluster.controller in cluster.nodes
    assert admin.describe_cluster(include_fenced=True).nodes.keys() == cluster.nodes.keys()
    (node,) = cluster.nodes
    assert admin.api_versions()[node][3].maximum >= 12
    features = admin.describe_features()
    for name, level in features.finalized.items():
        assert level.max_version_level <= features.supported[name].maximum

    def all_of_it() -> LogDirDescription:
        ((directory,),) = (each.values() for each in admin.describe_log_dirs().values())
        return directory

    directory = eventually(all_of_it, lambda found: TopicPartition(topic, 1) in found.replicas)
    assert directory.error is None
    assert {TopicPartition(topic, 0), TopicPartition(topic, 1)} <= directory.replicas.keys()
    (one,) = admin.describe_log_dirs(node, partitions=[TopicPartition(topic, 1)]).values()
    (directory,) = one.values()
    assert list(directory.replicas) == [TopicPartition(topic, 1)]


def test_both_worlds_are_one_implementation(bootstrap: str, topic: str) -> None:
    async def main() -> list[str]:
        async with AsyncAdmin(bootstrap) as admin:
            return list(await admin.create_topics(topic))

    assert asyncio.run(main()) == [topic]
    public = {name for name in vars(AsyncAdmin) if not name.startswith("_")} - {"start"}
    assert public - vars(Admin).keys() == set()


def test_a_closed_admin_is_a_clear_error(bootstrap: str) -> None:
    admin = Admin(bootstrap)
    admin.close()
    admin.close()
    with pytest.raises(ClientError, match="closed"):
        admin.list_topics()
