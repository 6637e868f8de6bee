"""Blocking admin client."""

from __future__ import annotations

from typing import Unpack

from ottla.client.admin.async_admin import AsyncAdmin
from ottla.client.admin.config import AdminConfig
from ottla.client.blocking import BlockingClient, LoopThread, blocking
from ottla.client.config import Bootstrap, Profile
from ottla.client.properties import AdminProperties


class Admin(BlockingClient[AsyncAdmin]):
    """Client that administers a cluster: topics, groups, configuration, quotas and transactions.

        with Admin("localhost:9092") as admin:
            print(admin.list_topics())

    Args:
        bootstrap: Broker addresses, such as `"host1:9092,host2:9092"`, a list of them, or a
            mapping of properties.
        profile: Properties to use unless they are given here: the path of a properties file, or
            a mapping.
        properties: Kafka's admin properties, with underscores for dots.

    Raises:
        InvalidConfig: A property does not exist or has an invalid value.
        BrokersUnreachable: No broker answered in time.
    """

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        profile: Profile | None = None,
        **properties: Unpack[AdminProperties],
    ) -> None:
        client = AsyncAdmin(bootstrap, profile=profile, **properties)
        super().__init__(client, LoopThread("ottla-admin"))

    @property
    def config(self) -> AdminConfig:
        """The configuration of the client."""
        return self._async.config

    def close(self) -> None:
        """Close all connections and end the client's thread."""
        if self._thread.is_running:
            self._thread.run(self._async.close)
            self._thread.close()

    list_topics = blocking(AsyncAdmin.list_topics)
    describe_topics = blocking(AsyncAdmin.describe_topics)
    describe_topics_by_id = blocking(AsyncAdmin.describe_topics_by_id)
    create_topics = blocking(AsyncAdmin.create_topics)
    delete_topics = blocking(AsyncAdmin.delete_topics)
    delete_topics_by_id = blocking(AsyncAdmin.delete_topics_by_id)
    create_partitions = blocking(AsyncAdmin.create_partitions)
    elect_leaders = blocking(AsyncAdmin.elect_leaders)
    alter_partition_reassignments = blocking(AsyncAdmin.alter_partition_reassignments)
    list_partition_reassignments = blocking(AsyncAdmin.list_partition_reassignments)
    describe_configs = blocking(AsyncAdmin.describe_configs)
    alter_configs = blocking(AsyncAdmin.alter_configs)
    list_config_resources = blocking(AsyncAdmin.list_config_resources)
    list_groups = blocking(AsyncAdmin.list_groups)
    describe_groups = blocking(AsyncAdmin.describe_groups)
    delete_groups = blocking(AsyncAdmin.delete_groups)
    remove_members_from_group = blocking(AsyncAdmin.remove_members_from_group)
    list_group_offsets = blocking(AsyncAdmin.list_group_offsets)
    list_group_lag = blocking(AsyncAdmin.list_group_lag)
    alter_group_offsets = blocking(AsyncAdmin.alter_group_offsets)
    delete_group_offsets = blocking(AsyncAdmin.delete_group_offsets)
    list_offsets = blocking(AsyncAdmin.list_offsets)
    delete_records = blocking(AsyncAdmin.delete_records)
    describe_producers = blocking(AsyncAdmin.describe_producers)
    list_transactions = blocking(AsyncAdmin.list_transactions)
    describe_transactions = blocking(AsyncAdmin.describe_transactions)
    abort_transaction = blocking(AsyncAdmin.abort_transaction)
    fence_producers = blocking(AsyncAdmin.fence_producers)
    describe_client_quotas = blocking(AsyncAdmin.describe_client_quotas)
    alter_client_quotas = blocking(AsyncAdmin.alter_client_quotas)
    describe_user_scram_credentials = blocking(AsyncAdmin.describe_user_scram_credentials)
    alter_user_scram_credentials = blocking(AsyncAdmin.alter_user_scram_credentials)
    describe_acls = blocking(AsyncAdmin.describe_acls)
    create_acls = blocking(AsyncAdmin.create_acls)
    delete_acls = blocking(AsyncAdmin.delete_acls)
    create_delegation_token = blocking(AsyncAdmin.create_delegation_token)
    renew_delegation_token = blocking(AsyncAdmin.renew_delegation_token)
    expire_delegation_token = blocking(AsyncAdmin.expire_delegation_token)
    describe_delegation_tokens = blocking(AsyncAdmin.describe_delegation_tokens)
    describe_cluster = blocking(AsyncAdmin.describe_cluster)
    describe_features = blocking(AsyncAdmin.describe_features)
    api_versions = blocking(AsyncAdmin.api_versions)
    describe_log_dirs = blocking(AsyncAdmin.describe_log_dirs)
    certificate_expiry = blocking(AsyncAdmin.certificate_expiry)
