"""Asyncio admin client; `admin.Admin` is its blocking twin.

Calls about several items take them one by one or as a list: `delete_topics("a", "b")`,
`delete_topics(["a", "b"])`. They return `Results`, a dict by item. If an item fails, the call
raises the first failure, unless `return_errors=True`: then `results.errors` holds them all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self, Unpack

from ottla.base.acl import AclBinding, AclFilter
from ottla.base.cluster import ElectionType
from ottla.base.config.resource import ResourceType
from ottla.base.principal import Principal
from ottla.base.types import TopicPartition
from ottla.client.admin import (
    acls,
    configs,
    delegation_tokens,
    group_offsets,
    groups,
    nodes,
    partitions,
    quotas,
    reassignments,
    topics,
    transactions,
    users,
)
from ottla.client.admin.config import AdminConfig
from ottla.client.admin.configs import (
    ConfigChange,
    ConfigEntry,
    ConfigResource,
)
from ottla.client.admin.delegation_tokens import DelegationToken, parse_principal
from ottla.client.admin.dispatch import Listing, Results
from ottla.client.admin.group_offsets import Committed, GroupLag
from ottla.client.admin.groups import GroupDescription, GroupListing
from ottla.client.admin.nodes import ApiVersions, ClusterDescription, Features, LogDirDescription
from ottla.client.admin.partitions import (
    IsolationLevel,
    ListedOffset,
    OffsetSpec,
    ProducerState,
)
from ottla.client.admin.quotas import QuotaEntity
from ottla.client.admin.reassignments import Reassignment
from ottla.client.admin.topics import (
    CreatedTopic,
    NewTopic,
    TopicDescription,
    TopicListing,
)
from ottla.client.admin.transactions import (
    AbortTransaction,
    TransactionDescription,
    TransactionListing,
)
from ottla.client.admin.users import (
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from ottla.client.arguments import flatten
from ottla.client.cluster import Cluster
from ottla.client.config import Bootstrap, Profile
from ottla.client.consumer.record import OffsetAndMetadata
from ottla.client.properties import AdminProperties


class AsyncAdmin:
    """Client that administers a cluster: topics, groups, configuration, users and transactions.

        async with AsyncAdmin("localhost:9092") as admin:
            print(await admin.list_topics())

    Args:
        bootstrap: Broker addresses, such as `"host1:9092,host2:9092"`, a list of them, or a
            mapping of properties.
        profile: Properties to use unless they are given here: the path of a properties file, or
            a mapping.
        properties: Kafka's admin properties, with underscores for dots.

    Raises:
        InvalidConfig: A property does not exist or has an invalid value.
    """

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        profile: Profile | None = None,
        **properties: Unpack[AdminProperties],
    ) -> None:
        self.config = AdminConfig.of(bootstrap, profile, properties)
        self._cluster = Cluster(self.config)

    async def start(self) -> None:
        """Connect to the cluster.

        Raises:
            BrokersUnreachable: No broker answered in time.
        """
        await self._cluster.start()

    async def close(self) -> None:
        """Close all connections."""
        await self._cluster.close()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # --------------------------------------------------------------------------------- topics

    async def list_topics(self, *, include_internal: bool = False) -> Listing[str, TopicListing]:
        """Return all topics by name.

        Args:
            include_internal: Include internal topics such as `__consumer_offsets`.
        """
        found = await topics.list_topics(self._cluster)
        if include_internal:
            return found
        return Listing((name, topic) for name, topic in found.items() if not topic.is_internal)

    async def describe_topics(
        self, *names: str | Iterable[str], return_errors: bool = False
    ) -> Results[str, TopicDescription]:
        """Return partitions, leaders, replicas and in-sync replicas of topics.

        Args:
            names: Names of the topics.
            return_errors: Collect failures in `errors` of the result instead of raising one.
        """
        wanted = flatten(names, str, "topic names")
        found = await topics.describe_topics(self._cluster, wanted)
        return found.checked(return_errors)

    async def describe_topics_by_id(
        self, *topic_ids: str | Iterable[str], return_errors: bool = False
    ) -> Results[str, TopicDescription]:
        """Return the same as `describe_topics` for topics that are given by ID.

        Args:
            topic_ids: IDs of the topics.
            return_errors: Collect failures in `errors` of the result instead of raising one.
        """
        wanted = flatten(topic_ids, str, "topic ids")
        found = await topics.describe_topics_by_id(self._cluster, wanted)
        return found.checked(return_errors)

    async def create_topics(
        self,
        *new_topics: NewTopic | str | Iterable[NewTopic | str],
        validate_only: bool = False,
        return_errors: bool = False,
    ) -> Results[str, CreatedTopic]:
        """Create topics.

        Args:
            new_topics: The topics. A name alone is a topic with the broker's defaults.
            validate_only: Check the request and create nothing.
            return_errors: Collect failures in `errors` of the result instead of raising one.
        """
        requested: list[NewTopic | str] = flatten(
            new_topics, (NewTopic, str), "NewTopic values or topic names"
        )
        wanted = [NewTopic(each) if isinstance(each, str) else each for each in requested]
        created = await topics.create_topics(self._cluster, wanted, validate_only=validate_only)
        return created.checked(return_errors)

    async def delete_topics(
        self, *names: str | Iterable[str], return_errors: bool = False
    ) -> Results[str, None]:
        """Delete topics and their records.

        Args:
            names: Names of the topics.
            return_errors: Collect failures in `errors` of the result instead of raising one.
        """
        unwanted = flatten(names, str, "topic names")
        deleted = await topics.delete_topics(self._cluster, unwanted)
        return deleted.checked(return_errors)

    async def delete_topics_by_id(
        self, *topic_ids: str | Iterable[str], return_errors: bool = False
    ) -> Results[str, None]:
        """Delete topics that are given by ID.

        Args:
            topic_ids: IDs of the topics.
            return_errors: Collect failures in `errors` of the result instead of raising one.
        """
        unwanted = flatten(topic_ids, str, "topic ids")
        deleted = await topics.delete_topics(self._cluster, unwanted, by_id=True)
        return deleted.checked(return_errors)

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
        return_errors: bool = False,
    ) -> Results[str, None]:
        """Increase the number of partitions of topics.

        Args:
            counts: The new number of partitions of each topic.
            assignments: Brokers of each new partition; unset, the controller chooses
                them.
            validate_only: Check the request and create nothing.
            return_errors: Collect failures in `errors` of the result instead of raising one.
        """
        created = await topics.create_partitions(
            self._cluster, counts, assignments or {}, validate_only=validate_only
        )
        return created.checked(return_errors)

    async def elect_leaders(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        kind: ElectionType = ElectionType.PREFERRED,
        return_errors: bool = False,
    ) -> Results[TopicPartition, None]:
        """Elect the leaders of partitions.

        Args:
            partitions: The partitions; None is all of them.
            kind: `PREFERRED` elects the first replica, `UNCLEAN` any replica that is
                alive, which may lose records.
            return_errors: Collect failures in `errors` of the result instead of raising one.
        """
        elected = await topics.elect_leaders(self._cluster, kind, partitions)
        return elected.checked(return_errors)

    async def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        may_change_factor: bool = True,
        return_errors: bool = False,
    ) -> Results[TopicPartition, None]:
        """Move replicas of partitions to other brokers.

        Args:
            targets: The brokers of each partition, the preferred leader first. None
                cancels a reassignment.
            may_change_factor: Allow targets that change the replication factor.
            return_errors: Collect failures in `errors` of the result instead of raising one.
        """
        altered = await reassignments.alter_reassignments(
            self._cluster, targets, may_change_factor=may_change_factor
        )
        return altered.checked(return_errors)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Return the reassignments that are in progress.

        Args:
            partitions: The partitions to look at; None is all of them.
        """
        return await reassignments.list_reassignments(self._cluster, partitions)

    # -------------------------------------------------------------------------------- configs

    async def describe_configs(
        self,
        *resources: ConfigResource | Iterable[ConfigResource],
        names: Iterable[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        return_errors: bool = False,
    ) -> Results[ConfigResource, dict[str, ConfigEntry]]:
        """Return the configuration of topics, brokers, loggers or groups.

        Args:
            resources: The resources.
            names: Properties to return; None is all of them.
            include_synonyms: Include the properties that each value is derived from.
            include_documentation: Include the description of each property.
            return_errors: Collect failures in `errors` of the result instead of raising one.
        """
        found = await configs.describe_configs(
            self._cluster,
            flatten(resources, ConfigResource, "ConfigResource values"),
            names=names,
            include_synonyms=include_synonyms,
            include_documentation=include_documentation,
        )
        return found.checked(return_errors)

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[ConfigChange] | Mapping[str, str | None]],
        *,
        validate_only: bool = False,
        return_errors: bool = False,
    ) -> Results[ConfigResource, None]:
        """Change some properties of resources and keep the others.

        Args:
            changes: The changes of each resource. A mapping sets its values, and None
                resets a property to its default.
            validate_only: Check the changes and apply none.
            return_errors: Collect failures in `errors` of the result instead of raising one.
        """
        listed = {resource: configs.as_changes(each) for resource, each in changes.items()}
        done = await configs.alter_configs(self._cluster, listed, validate_only=validate_only)
        return done.checked(return_errors)

    async def list_config_resources(
        self, *types: ResourceType | Iterable[ResourceType]
    ) -> list[ConfigResource]:
        """Return the resources that have a configuration.

        Args:
            types: Types to return; none is all of them.
        """
        wanted = flatten(types, ResourceType, "ResourceType values")
        return await configs.list_config_resources(self._cluster, wanted)

    # --------------------------------------------------------------------------------- groups

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> Listing[str, GroupListing]:
        """Return all groups by ID.

        Args:
            states: Only groups in these states, such as `Stable` or `Empty`.
            types: Only groups of these types, such as `classic` or `consumer`.
        """
        return await groups.list_groups(self._cluster, self._brokers(), states=states, types=types)

    async def describe_groups(
        self, *group_ids: str | Iterable[str], return_errors: bool = False
    ) -> Results[str, GroupDescription]:
        """Return state, coordinator, members and assignments of groups.

        Args:
            group_ids: IDs of the groups.
            return_errors: Collect failures in `errors` of the result instead of raising one.
        """
        wanted = flatten(group_ids, str, "group ids")
        found = await groups.describe_groups(self._cluster, wanted)
        return found.checked(return_errors)

    async def delete_groups(
        self, *group_ids: str | Iterable[str], return_errors: bool = False
    ) -> Results[str, None]:
        """Delete groups that have no members, and their committed offsets.

        Args:
            group_ids: IDs of the groups.
            return_errors: Collect failures in `errors` of the result instead of raising one.
        """
        unwanted = flatten(group_ids, str, "group ids")
        deleted = await groups.delete_groups(self._cluster, unwanted)
        return deleted.checked(return_errors)

    async def remove_members_from_group(
        self,
        group_id: str,
        instance_ids: Iterable[str] = (),
        *,
        member_ids: Iterable[str] = (),
        reason: str | None = None,
        return_errors: bool = False,
    ) -> Results[str, None]:
        """Remove members from a group.

        Args:
            group_id: ID of the group.
            instance_ids: Static members, by `group.instance.id`.
            member_ids: Other members, by member ID.
            reason: Text for the log of the coordinator.
            return_errors: Collect failures in `errors` of the result instead of raising one.
        """
        removed = await groups.remove_members(
            self._cluster, group_id, instance_ids, member_ids=member_ids, reason=reason
        )
        return removed.checked(return_errors)

    async def list_group_offsets(
        self,
        *group_ids: str | Iterable[str],
        partitions: Iterable[TopicPartition] | None = None,
        require_stable: bool = False,
        return_errors: bool = False,
    ) -> Results[str, Committed]:
        """Return the committed offsets of groups.

        Args:
            group_ids: IDs of the groups.
            partitions: The partitions; None is all that the group has committed.
            require_stable: Wait for open transactions that commit offsets.
            return_errors: Collect failures in `errors` of the result instead of raising one.
        """
        wanted = None if partitions is None else list(partitions)
        found = await group_offsets.list_group_offsets(
            self._cluster,
            dict.fromkeys(flatten(group_ids, str, "group ids"), wanted),
            require_stable=require_stable,
        )
        return found.checked(return_errors)

    async def list_group_lag(
        self, *group_ids: str | Iterable[str], return_errors: bool = False
    ) -> Results[str, GroupLag]:
        """Return how far groups are behind, for the partitions that they have committed.

        Args:
            group_ids: The groups, one by one or as a list.
            return_errors: Return failures as `errors` of the result instead of raising the first.
        """
        wanted = flatten(group_ids, str, "group ids")
        found = await group_offsets.list_group_lag(self._cluster, wanted)
        return found.checked(return_errors)

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        return_errors: bool = False,
    ) -> Results[TopicPartition, None]:
        """Set the committed offsets of a group that has no members.

        Args:
            group_id: ID of the group.
            offsets: The new offset of each partition.
            return_errors: Collect failures in `errors` of the result instead of raising one.
        """
        to_commit = {
            TopicPartition(*key): OffsetAndMetadata(value) if isinstance(value, int) else value
            for key, value in offsets.items()
        }
        altered = await group_offsets.alter_group_offsets(self._cluster, group_id, to_commit)
        return altered.checked(return_errors)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, return_errors: bool = False
    ) -> Results[TopicPartition, None]:
        """Delete committed offsets of a group.

        Args:
            group_id: ID of the group.
            partitions: Partitions whose offsets are deleted.
            return_errors: Collect failures in `errors` of the result instead of raising one.
        """
        deleted = await group_offsets.delete_group_offsets(self._cluster, group_id, partitions)
        return deleted.checked(return_errors)

    # ----------------------------------------------------------------------------- partitions

    async def list_offsets(
        self,
        wanted: Mapping[TopicPartition, OffsetSpec | int],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        return_errors: bool = False,
    ) -> Results[TopicPartition, ListedOffset]:
        """Return offsets of partitions by position or by time.

        Args:
            wanted: For each partition an `OffsetSpec`, or a timestamp in milliseconds
                since the epoch.
            isolation: `READ_COMMITTED` makes the latest offset the last stable offset.
            return_errors: Collect failures in `errors` of the result instead of raising one.
        """
        found = await partitions.list_offsets(self._cluster, wanted, isolation)
        return found.checked(return_errors)

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, return_errors: bool = False
    ) -> Results[TopicPartition, int]:
        """Delete the records before given offsets.

        Args:
            before: The first offset to keep of each partition; -1 deletes all records.
            return_errors: Collect failures in `errors` of the result instead of raising one.

        Returns:
            The new log start offset of each partition.
        """
        deleted = await partitions.delete_records(self._cluster, before)
        return deleted.checked(return_errors)

    async def describe_producers(
        self,
        *wanted: TopicPartition | Iterable[TopicPartition],
        broker: int | None = None,
        return_errors: bool = False,
    ) -> Results[TopicPartition, list[ProducerState]]:
        """Return the active producers of partitions.

        Args:
            wanted: The partitions.
            broker: ID of the replica to ask; None is the leader.
            return_errors: Collect failures in `errors` of the result instead of raising one.
        """
        requested = flatten(wanted, TopicPartition, "TopicPartition values")
        found = await partitions.describe_producers(self._cluster, requested, broker)
        return found.checked(return_errors)

    # --------------------------------------------------------------------------- transactions

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> dict[str, TransactionListing]:
        """Return the transactional IDs of the cluster, with their states.

        Args:
            states: Only transactions in these states.
            producer_ids: Only transactions of these producers.
            longer_than_ms: Only transactions that have been open for longer, in
                milliseconds.
            pattern: Only transactional IDs that match this regular expression.
        """
        return await transactions.list_transactions(
            self._cluster,
            self._brokers(),
            states=states,
            producer_ids=producer_ids,
            longer_than_ms=longer_than_ms,
            pattern=pattern,
        )

    async def describe_transactions(
        self, *transactional_ids: str | Iterable[str], return_errors: bool = False
    ) -> Results[str, TransactionDescription]:
        """Return state, producer and partitions of transactions.

        Args:
            transactional_ids: The transactional IDs.
            return_errors: Collect failures in `errors` of the result instead of raising one.
        """
        wanted = flatten(transactional_ids, str, "transactional ids")
        found = await transactions.describe_transactions(self._cluster, wanted)
        return found.checked(return_errors)

    async def abort_transaction(self, transaction: AbortTransaction) -> None:
        """Abort a hanging transaction, which its coordinator no longer knows.

        The abort marker bypasses the coordinator: use it for hanging transactions only.

        Args:
            transaction: Partition, producer ID and epoch of the transaction.
        """
        await transactions.abort_transaction(self._cluster, transaction)

    async def fence_producers(
        self, *transactional_ids: str | Iterable[str], return_errors: bool = False
    ) -> Results[str, tuple[int, int]]:
        """Abort the open transactions of transactional IDs and fence their producers.

        Args:
            transactional_ids: The transactional IDs.
            return_errors: Collect failures in `errors` of the result instead of raising one.
        """
        wanted = flatten(transactional_ids, str, "transactional ids")
        fenced = await transactions.fence_producers(self._cluster, wanted)
        return fenced.checked(return_errors)

    # --------------------------------------------------------------------------------- quotas

    async def describe_client_quotas(
        self, *parts: tuple[str, str | None] | list[tuple[str, str | None]], strict: bool = True
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return client quotas.

        Args:
            parts: Pairs of an entity type (`user`, `client-id` or `ip`) and a name. ""
                is the default entity, None any name.
            strict: Return only entities that have no other parts.
        """
        wanted = flatten(parts, tuple, "pairs of a kind and a name")
        return await quotas.describe_client_quotas(self._cluster, wanted, strict=strict)

    async def alter_client_quotas(
        self, entity: QuotaEntity, changes: Mapping[str, float | None]
    ) -> None:
        """Set or remove client quotas.

        Args:
            entity: The entity that the quotas apply to.
            changes: The value of each quota; None removes it.
        """
        await quotas.alter_client_quotas(self._cluster, entity, changes)

    # ---------------------------------------------------------------------------------- users

    async def describe_user_scram_credentials(
        self, *names: str | list[str], return_errors: bool = False
    ) -> Results[str, list[ScramCredentialInfo]]:
        """Return the mechanisms and iterations of the SCRAM credentials of users.

        Args:
            names: Names of the users; all users if none are given.
            return_errors: Collect failures in `errors` of the result instead of raising one.
        """
        wanted = flatten(names, str, "names of users")
        found = await users.describe_user_scram_credentials(self._cluster, wanted)
        return found.checked(return_errors)

    async def alter_user_scram_credentials(
        self,
        *alterations: UserScramCredentialUpsertion
        | UserScramCredentialDeletion
        | list[UserScramCredentialUpsertion | UserScramCredentialDeletion],
        return_errors: bool = False,
    ) -> Results[str, None]:
        """Set passwords of users for SCRAM, and delete them.

        The alterations of one user are carried out together or not at all.

        Args:
            alterations: The passwords to set and the credentials to delete.
            return_errors: Collect failures in `errors` of the result instead of raising one.
        """
        kinds = (UserScramCredentialUpsertion, UserScramCredentialDeletion)
        wanted: list[UserScramCredentialUpsertion | UserScramCredentialDeletion]
        wanted = flatten(alterations, kinds, "alterations of users")
        altered = await users.alter_user_scram_credentials(self._cluster, wanted)
        return altered.checked(return_errors)

    # ----------------------------------------------------------------------------------- ACLs

    async def describe_acls(self, filter: AclFilter | AclBinding | None = None) -> list[AclBinding]:
        """Return the ACLs that a filter matches.

        Args:
            filter: The filter, or an ACL, which matches itself; None for all ACLs.

        Raises:
            ClientError: The cluster has no authorizer (SECURITY_DISABLED), or refuses the filter.
        """
        wanted = AclFilter() if filter is None else acls.as_filter(filter)
        return await acls.describe_acls(self._cluster, wanted)

    async def create_acls(
        self, *bindings: AclBinding | list[AclBinding], return_errors: bool = False
    ) -> Results[AclBinding, None]:
        """Create ACLs. One that exists is a success.

        Args:
            bindings: The ACLs.
            return_errors: Collect failures in `errors` of the result instead of raising one.

        Raises:
            ClientError: The cluster has no authorizer (SECURITY_DISABLED), or refuses an ACL.
        """
        wanted: list[AclBinding] = flatten(bindings, AclBinding, "ACLs")
        created = await acls.create_acls(self._cluster, wanted)
        return created.checked(return_errors)

    async def delete_acls(
        self,
        *filters: AclFilter | AclBinding | list[AclFilter | AclBinding],
        return_errors: bool = False,
    ) -> Results[AclFilter, list[AclBinding]]:
        """Delete the ACLs that filters match.

        Args:
            filters: The filters, or ACLs, which match themselves. `AclFilter()` matches all ACLs.
            return_errors: Collect failures in `errors` of the result instead of raising one.

        Returns:
            The deleted ACLs of each filter.

        Raises:
            ClientError: The cluster has no authorizer (SECURITY_DISABLED), or refuses a filter.
        """
        kinds = (AclFilter, AclBinding)
        wanted: list[AclFilter | AclBinding] = flatten(filters, kinds, "filters of ACLs")
        deleted = await acls.delete_acls(self._cluster, map(acls.as_filter, wanted))
        return deleted.checked(return_errors)

    # ----------------------------------------------------------------------- delegation tokens

    async def create_delegation_token(
        self,
        *,
        owner: Principal | str | None = None,
        renewers: Iterable[Principal | str] = (),
        max_lifetime_ms: int = -1,
    ) -> DelegationToken:
        """Create a delegation token.

        Args:
            owner: Principal that the token acts for, such as `"User:alice"`; by default the one
                of this client.
            renewers: Principals that may renew the token, besides its owner.
            max_lifetime_ms: Time after which the token cannot be renewed; if negative, the
                broker's limit.
        """
        return await delegation_tokens.create_delegation_token(
            self._cluster,
            None if owner is None else parse_principal(owner),
            [parse_principal(each) for each in renewers],
            max_lifetime_ms,
        )

    async def renew_delegation_token(self, hmac: bytes, *, renew_period_ms: int = -1) -> int:
        """Renew a delegation token.

        Args:
            hmac: HMAC of the token.
            renew_period_ms: New time to live; if negative, the broker's default.

        Returns:
            The new time of expiry, in milliseconds since 1970.
        """
        return await delegation_tokens.renew_delegation_token(self._cluster, hmac, renew_period_ms)

    async def expire_delegation_token(self, hmac: bytes, *, expiry_period_ms: int = -1) -> int:
        """Let a delegation token expire, by default at once.

        Args:
            hmac: HMAC of the token.
            expiry_period_ms: New time to live; if negative, the token is removed.

        Returns:
            The new time of expiry, in milliseconds since 1970.
        """
        return await delegation_tokens.expire_delegation_token(
            self._cluster, hmac, expiry_period_ms
        )

    async def describe_delegation_tokens(
        self, owners: Iterable[Principal | str] | None = None
    ) -> list[DelegationToken]:
        """Return the delegation tokens that this client may see.

        Args:
            owners: Owners or renewers of the tokens; None for all.
        """
        wanted = None if owners is None else [parse_principal(each) for each in owners]
        return await delegation_tokens.describe_delegation_tokens(self._cluster, wanted)

    # -------------------------------------------------------------------------------- cluster

    async def describe_cluster(self, *, include_fenced: bool = False) -> ClusterDescription:
        """Return the ID, the controller and the brokers of the cluster.

        Args:
            include_fenced: Include brokers that are registered but fenced.
        """
        return await nodes.describe_cluster(self._cluster, include_fenced=include_fenced)

    async def describe_features(self) -> Features:
        """Return the supported and the finalized features of the cluster."""
        return await nodes.describe_features(self._cluster)

    async def api_versions(
        self, *brokers: int | Iterable[int], return_errors: bool = False
    ) -> Results[int, dict[int, ApiVersions]]:
        """Return the API versions that brokers support.

        Args:
            brokers: IDs of the brokers; none is all of them.
            return_errors: Collect failures in `errors` of the result instead of raising one.
        """
        requested = flatten(brokers, int, "broker ids") or self._brokers()
        found = await nodes.api_versions(self._cluster, requested)
        return found.checked(return_errors)

    async def describe_log_dirs(
        self,
        *brokers: int | Iterable[int],
        partitions: Iterable[TopicPartition] | None = None,
        return_errors: bool = False,
    ) -> Results[int, dict[str, LogDirDescription]]:
        """Return the log directories of brokers: replicas, sizes, lags and free space.

        Args:
            brokers: IDs of the brokers; none is all of them.
            partitions: Only these partitions; None is all of them.
            return_errors: Collect failures in `errors` of the result instead of raising one.
        """
        requested = flatten(brokers, int, "broker ids") or self._brokers()
        found = await nodes.describe_log_dirs(self._cluster, requested, partitions)
        return found.checked(return_errors)

    async def certificate_expiry(
        self, *brokers: int | Iterable[int], return_errors: bool = False
    ) -> Results[int, datetime | None]:
        """Return when the certificates of brokers expire, each on the listener that this client
        uses. It is None without TLS, or if the client does not verify certificates.

        Args:
            brokers: IDs of the brokers; none is all of them.
            return_errors: Collect failures in `errors` of the result instead of raising one.
        """
        requested = flatten(brokers, int, "broker ids") or self._brokers()
        found = await nodes.certificate_expiry(self._cluster, requested)
        return found.checked(return_errors)

    def _brokers(self) -> list[int]:
        return sorted(self._cluster.metadata.nodes)
