"""Every API that the broker serves, in every version of its schema.

Both kio and Ottla's codec read the response, and its contents are checked. Each API has one
scenario. Fields that a version does not have are left out of its request; in the response they
read as defaults, so a scenario states from which version on it expects a field."""

from __future__ import annotations

import pytest
from tests.integration.scenarios import configs, groups, records, topics, transactions, users
from tests.integration.scenarios.given import TIMESTAMP, Given, Scenarios
from tests.raw_client import Api, RawClient

from ottla.base.errors import ErrorCode
from ottla.broker.router import HANDLERS
from ottla.testing.broker import BrokerProcess
from ottla.wire import schema

API_KEYS = sorted({*HANDLERS, Api.API_VERSIONS})


def api_versions(given: Given, version: int) -> None:
    answer = given.client.call(
        Api.API_VERSIONS, version, client_software_name="test", client_software_version="1.0"
    )
    assert answer.error_code == 0
    assert [api.api_key for api in answer.api_keys] == API_KEYS


def sasl_handshake(given: Given, version: int) -> None:
    answer = given.client.call(Api.SASL_HANDSHAKE, version, mechanism="PLAIN")
    assert (answer.error_code, list(answer.mechanisms)) == (ErrorCode.ILLEGAL_SASL_STATE, [])


def sasl_authenticate(given: Given, version: int) -> None:
    answer = given.client.call(Api.SASL_AUTHENTICATE, version, auth_bytes=b"\0me\0secret")
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert answer.error_message


SCENARIOS: Scenarios = {
    Api.API_VERSIONS: api_versions,
    Api.SASL_HANDSHAKE: sasl_handshake,
    Api.SASL_AUTHENTICATE: sasl_authenticate,
    **records.SCENARIOS,
    **topics.SCENARIOS,
    **configs.SCENARIOS,
    **groups.SCENARIOS,
    **transactions.SCENARIOS,
    **users.SCENARIOS,
}
CASES = [(api_key, version) for api_key in API_KEYS for version in schema.versions(api_key)]


@pytest.fixture
def given(broker: BrokerProcess, client: RawClient, topic: str) -> Given:
    topic_id = client.create_topic(topic, 2)
    producer_id = client.new_producer()
    records = [(b"k", b"v%d" % number, (), TIMESTAMP + number) for number in range(3)]
    answer = client.produce(
        topic, records, producer_id=producer_id, producer_epoch=0, base_sequence=0
    )
    assert answer.error_code == 0
    return Given(broker, client, topic, topic_id, producer_id)


def test_every_api_has_a_scenario() -> None:
    assert sorted(SCENARIOS) == API_KEYS


@pytest.mark.parametrize(
    ("api_key", "version"), CASES, ids=[f"{schema.api_name(a)}-{v}" for a, v in CASES]
)
def test_the_answer_is_right(given: Given, api_key: int, version: int) -> None:
    SCENARIOS[api_key](given, version)
