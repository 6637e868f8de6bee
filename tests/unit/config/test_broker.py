"""Tests of the broker configuration: accepted values, and the values in effect."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ottla.base.config.broker import BrokerConfig, Listener
from ottla.base.config.broker_authorization_table import AUTHORIZERS
from ottla.base.config.definition import DAY_MS, HOUR_MS, LONG_MAX, MINUTE_MS
from ottla.base.errors import ErrorCode, KafkaError, UserError


def config(**properties: str) -> BrokerConfig:
    """Return a configuration; `log__retention__ms="1"` sets log.retention.ms."""
    return BrokerConfig.from_properties({k.replace("__", "."): v for k, v in properties.items()})


def refused(**properties: str) -> str:
    with pytest.raises(UserError) as caught:
        config(**properties)
    return str(caught.value)


def test_a_broker_without_configuration_has_kafkas_defaults_and_listens_on_this_machine() -> None:
    defaults = BrokerConfig()
    assert defaults.node_id == 1
    assert defaults.listeners == [Listener("PLAINTEXT", "127.0.0.1", 9092)]
    assert defaults.advertised_listeners == defaults.listeners
    assert defaults.num_partitions == 1
    assert defaults.auto_create_topics_enable is True
    assert defaults.log_retention_ms == 7 * DAY_MS
    assert defaults.log_flush_acks_all is False
    assert defaults.notices() == []


def test_attributes_are_parsed_values() -> None:
    parsed = config(
        num__partitions=" 6 ",
        log__dirs="/a, /b",
        log__cleaner__min__cleanable__ratio="0.25",
        delete__topic__enable="False",
        broker__rack="r1",
        log__flush__acks__all="true",
    )
    assert parsed.num_partitions == 6
    assert parsed.log_dirs == ["/a", "/b"]
    assert parsed.log_cleaner_min_cleanable_ratio == 0.25
    assert parsed.delete_topic_enable is False
    assert parsed.broker_rack == "r1"
    assert parsed.log_flush_acks_all is True


def test_log_dirs_are_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    parsed = config(log__dirs="./a,b/../c,/d/")
    assert parsed.log_dirs == [f"{tmp_path}/a", f"{tmp_path}/c", "/d"]
    assert parsed.text("log.dirs") == "./a,b/../c,/d/", "as it was set"


def test_log_dir_counts_only_without_log_dirs() -> None:
    assert config(log__dir="/a").log_dirs == ["/a"]
    assert config(log__dir="/a", log__dirs="/b").log_dirs == ["/b"]


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 3 * MINUTE_MS),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-1", "log.retention.hours": "5"}, -1),
    ],
)
def test_the_finest_unit_of_retention_wins(properties: dict[str, str], retention_ms: int) -> None:
    assert BrokerConfig.from_properties(properties).log_retention_ms == retention_ms


def test_roll_and_flush_times_take_in_their_coarser_properties() -> None:
    parsed = config(
        log__roll__hours="3", log__roll__jitter__hours="1", log__flush__scheduler__interval__ms="7"
    )
    assert parsed.log_roll_ms == 3 * HOUR_MS
    assert parsed.log_roll_jitter_ms == HOUR_MS
    assert parsed.log_flush_interval_ms == 7
    assert BrokerConfig().log_flush_interval_ms == LONG_MAX


def test_node_id_and_broker_id_are_one() -> None:
    assert config(broker__id="4").node_id == 4
    assert config(node__id="5").broker_id == 5
    assert config(broker__id="-1").node_id == 1
    assert "must be the same as node.id" in refused(broker__id="4", node__id="5")


def test_a_wrong_value_is_one_sentence() -> None:
    assert refused(num__partitions="0") == (
        "Invalid value 0 for configuration num.partitions: the value must be at least 1."
    )


def test_further_wrong_values_are_named_with_the_first() -> None:
    sentence = refused(num__partitions="0", log__segment__bytes="x", node__id="-3")
    assert sentence.endswith(" Also invalid: log.segment.bytes, node.id.")


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"log.retention.ms": "0"}, "log.retention.ms"),
        ({"log.retention.minutes": "0"}, "log.retention.ms"),
        ({"queued.max.request.bytes": "10"}, "socket.request.max.bytes"),
        ({"replica.fetch.wait.max.ms": "60000"}, "replica.lag.time.max.ms"),
        ({"group.consumer.session.timeout.ms": "1"}, "between its minimum (45000) and its maximum"),
        (
            {
                "group.consumer.heartbeat.interval.ms": "50000",
                "group.consumer.max.heartbeat.interval.ms": "50000",
            },
            "less than group.consumer.session.timeout.ms",
        ),
        (
            {
                "log.cleaner.min.compaction.lag.ms": "9",
                "log.cleaner.max.compaction.lag.ms": "8",
            },
            "log.cleaner.max.compaction.lag.ms",
        ),
        ({"inter.broker.listener.name": "INTERNAL"}, "name of a listener (PLAINTEXT)"),
        ({"security.inter.broker.protocol": "SSL"}, "must be the security protocol of a listener"),
        (
            {
                "listeners": "SSL://a:1,PLAINTEXT://b:2",
                "security.inter.broker.protocol": "SSL",
                "inter.broker.listener.name": "SSL",
            },
            "must not be set together with inter.broker.listener.name",
        ),
        (
            {
                "inter.broker.listener.name": "PLAINTEXT",
                "security.inter.broker.protocol": "PLAINTEXT",
            },
            "must not be set together with inter.broker.listener.name",
        ),
        (
            {
                "listeners": "A://a:1,B://a:2",
                "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
                "inter.broker.listener.name": "A",
                "advertised.listeners": "B://a:2",
            },
            "must contain the listener for brokers, A",
        ),
        ({"super.users": "User:admin;alice"}, "list of principals, separated by semicolons"),
        ({"super.users": "User:"}, "list of principals, separated by semicolons"),
    ],
)
def test_values_that_contradict_each_other_are_refused(
    properties: dict[str, str], words: str
) -> None:
    with pytest.raises(UserError) as caught:
        BrokerConfig.from_properties(properties)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("create.topic.policy.class.name", "com.example.Policy", "Java code"),
        ("remote.log.storage.system.enable", "true", "remote storage is not in this release"),
    ],
)
def test_what_cannot_be_ignored_honestly_is_refused(name: str, value: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        BrokerConfig.from_properties({name: value})
    assert str(caught.value).startswith(f"{name} cannot be used: ")
    assert words in str(caught.value)


def test_a_refused_property_that_asks_for_nothing_is_taken() -> None:
    config(remote__log__storage__system__enable="false")


@pytest.mark.parametrize("name", ["", *AUTHORIZERS])
def test_the_authorizer_has_kafkas_names(name: str) -> None:
    assert config(authorizer__class__name=name).authorizer_class_name == name


def test_another_authorizer_is_refused() -> None:
    with pytest.raises(UserError, match="or ottla, because other authorizers are Java code"):
        config(authorizer__class__name="com.example.Authorizer")


def test_an_unknown_property_gets_a_warning_that_names_the_nearest() -> None:
    (notice,) = config(num__partition="3").notices()
    assert notice.level == logging.WARNING
    assert notice.text == (
        "num.partition is not a known property and has no effect; did you mean num.partitions?"
    )


def test_a_property_like_no_other_gets_a_warning_without_a_guess() -> None:
    (notice,) = config(zzz="3").notices()
    assert notice.text == "zzz is not a known property and has no effect."


def test_a_property_that_is_shown_and_does_nothing_is_reported() -> None:
    (notice,) = config(queued__max__requests="100").notices()
    assert notice.level == logging.INFO
    assert notice.text.startswith("queued.max.requests has no effect: ")


def test_properties_of_kraft_are_not_needed_and_of_security_without_effect() -> None:
    notices = config(
        process__roles="broker,controller",
        controller__quorum__voters="1@localhost:9093",
        ssl__secure__random__implementation="x",
        sasl__kerberos__service__name="kafka",
        zookeeper__max__in__flight__requests="10",
    ).notices()
    assert [(notice.level, notice.text.split(":")[0]) for notice in notices] == [
        (logging.INFO, "process.roles is not needed"),
        (logging.INFO, "controller.quorum.voters is not needed"),
        (logging.WARNING, "ssl.secure.random.implementation has no effect"),
        (logging.WARNING, "sasl.kerberos.service.name has no effect"),
        (logging.WARNING, "zookeeper.max.in.flight.requests has no effect"),
    ]


def test_kafkas_own_sample_configuration_starts_a_broker() -> None:
    sample = config(
        process__roles="broker,controller",
        node__id="1",
        controller__quorum__bootstrap__servers="localhost:9093",
        listeners="PLAINTEXT://:9092,CONTROLLER://:9093",
        inter__broker__listener__name="PLAINTEXT",
        advertised__listeners="PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        controller__listener__names="CONTROLLER",
        listener__security__protocol__map=(
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
        ),
    )
    assert sample.listeners == [Listener("PLAINTEXT", "", 9092)]
    assert sample.advertised_listeners == [Listener("PLAINTEXT", "localhost", 9092)]


def test_a_configuration_does_not_change() -> None:
    with pytest.raises(AttributeError, match="with_dynamic"):
        BrokerConfig().num_partitions = 3


def test_dynamic_values_of_this_broker_win_over_those_of_all_and_over_the_file() -> None:
    static = config(message__max__bytes="1", log__cleaner__threads="2")
    changed = static.with_dynamic(
        {"message.max.bytes": "10", "log.cleaner.threads": "3"}, {"message.max.bytes": "20"}
    )
    assert changed.message_max_bytes == 20
    assert changed.log_cleaner_threads == 3
    assert static.message_max_bytes == 1


def test_a_dynamic_value_that_is_taken_back_leaves_no_trace() -> None:
    static = config(message__max__bytes="1")
    changed = static.with_dynamic({}, {"message.max.bytes": "20"})
    assert changed.with_dynamic({}, {}).message_max_bytes == 1


def test_a_dynamic_retention_wins_over_static_hours() -> None:
    static = config(log__retention__hours="5")
    assert static.with_dynamic({"log.retention.ms": "9"}, {}).log_retention_ms == 9


def test_a_wrong_dynamic_value_is_an_invalid_request() -> None:
    with pytest.raises(KafkaError) as caught:
        BrokerConfig().with_dynamic({}, {"log.retention.ms": "0"})
    assert caught.value.code is ErrorCode.INVALID_REQUEST


# ------------------------------------------------------------------------------------------- TLS

TLS = {
    "listeners": "INTERNAL://a:1,EXTERNAL://b:2,PLAIN://c:3",
    "listener.security.protocol.map": "INTERNAL:SSL,EXTERNAL:SSL,PLAIN:PLAINTEXT",
    "inter.broker.listener.name": "internal",
    "ssl.keystore.location": "/all",
    "ssl.key.password": "secret of all",
    "listener.name.external.ssl.keystore.location": "/external",
    "listener.name.external.ssl.key.password": "secret of external",
    "listener.name.external.ssl.client.auth": "required",
}


def test_a_listener_overrides_the_tls_settings_of_all() -> None:
    config = BrokerConfig.from_properties(TLS)
    assert config.notices() == []
    internal, external = (config.tls_settings[name] for name in ("INTERNAL", "EXTERNAL"))
    assert (internal.keystore_location, internal.client_auth) == ("/all", "none")
    assert (external.keystore_location, external.client_auth) == ("/external", "required")
    assert external.key_password == "secret of external"
    assert external.name_of("key.password") == "listener.name.external.ssl.key.password"
    assert config.tls_settings.keys() == {"INTERNAL", "EXTERNAL"}
    assert config.inter_broker_listener == "INTERNAL"


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"listeners": "SSL://a:1,PLAINTEXT://b:2"}, "PLAINTEXT"),
        (
            {"listeners": "SSL://a:1,PLAINTEXT://b:2", "security.inter.broker.protocol": "SSL"},
            "SSL",
        ),
        ({"listeners": "SSL://a:1"}, "SSL"),
    ],
)
def test_brokers_use_the_listener_of_their_protocol(
    properties: dict[str, str], expected: str
) -> None:
    assert BrokerConfig.from_properties(properties).inter_broker_listener == expected


def test_secrets_are_not_in_the_representation() -> None:
    text = repr(BrokerConfig.from_properties({**TLS, "sasl.jaas.config": "secret too"}))
    assert "secret" not in text
    assert "/external" in text


def test_an_invalid_override_is_named() -> None:
    with pytest.raises(UserError, match=r"listener\.name\.external\.ssl\.client\.auth"):
        BrokerConfig.from_properties({**TLS, "listener.name.external.ssl.client.auth": "maybe"})
