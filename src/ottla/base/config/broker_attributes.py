"""The attributes of `BrokerConfig`, declared for the type checker.

Each attribute is the parsed value of the property of that name. Where one property can replace
another, the attribute is the effective value: `log_retention_ms`, `log_roll_ms`,
`log_roll_jitter_ms` and `log_flush_interval_ms` take the properties with coarser units into
account; `log_dirs` takes `log.dir` into account and has absolute paths; `node_id` and `broker_id`
are equal; `listeners` contains only those for clients; and `advertised_listeners` is never empty,
always has a host, and has port 0 if the listener does.
"""

from __future__ import annotations

from ottla.base.config.listener import Listener, SecurityProtocol
from ottla.base.config.sasl_settings import SaslSettings
from ottla.base.config.tls_settings import TlsSettings
from ottla.base.config.zookeeper_security import ZooKeeperSecurity


class BrokerAttributes:
    """Base class of `BrokerConfig` that declares its attributes."""

    node_id: int
    broker_id: int
    broker_rack: str | None
    num_partitions: int
    default_replication_factor: int
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    background_threads: int
    num_io_threads: int
    num_network_threads: int
    controlled_shutdown_enable: bool
    controlled_shutdown_timeout_ms: int
    request_timeout_ms: int
    listeners: list[Listener]
    advertised_listeners: list[Listener]
    listener_security_protocol_map: str
    listener_protocols: dict[str, SecurityProtocol]
    """Security protocol of each listener in `listeners`."""
    tls_settings: dict[str, TlsSettings]
    """TLS settings of the listeners that use it."""
    inter_broker_listener: str
    """Name of the listener for communication between brokers."""
    inter_broker_listener_name: str | None
    security_inter_broker_protocol: str
    ssl_protocol: str
    ssl_enabled_protocols: list[str]
    ssl_cipher_suites: list[str]
    ssl_keystore_type: str
    ssl_keystore_location: str | None
    ssl_keystore_password: str | None
    ssl_key_password: str | None
    ssl_keystore_key: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_truststore_type: str
    ssl_truststore_location: str | None
    ssl_truststore_password: str | None
    ssl_truststore_certificates: str | None
    ssl_client_auth: str
    ssl_endpoint_identification_algorithm: str
    ssl_principal_mapping_rules: str
    ssl_allow_dn_changes: bool
    ssl_allow_san_changes: bool
    authorizer_class_name: str
    allow_everyone_if_no_acl_found: bool
    authorizer_audit_log_format: str
    super_users: str
    sasl_settings: dict[str, SaslSettings]
    """SASL settings of the listeners that use it."""
    sasl_enabled_mechanisms: list[str]
    sasl_mechanism_inter_broker_protocol: str
    sasl_jaas_config: str | None
    sasl_server_callback_handler_class: str | None
    sasl_server_max_receive_size: int
    connections_max_reauth_ms: int
    connection_failed_authentication_delay_ms: int
    principal_builder_class: str
    sasl_oauthbearer_jwks_endpoint_url: str | None
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int
    sasl_oauthbearer_clock_skew_seconds: int
    sasl_oauthbearer_expected_audience: list[str]
    sasl_oauthbearer_allow_unverified_audience: bool
    sasl_oauthbearer_expected_issuer: str | None
    sasl_oauthbearer_allow_unverified_issuer: bool
    sasl_oauthbearer_scope_claim_name: str
    sasl_oauthbearer_sub_claim_name: str
    sasl_oauthbearer_jwt_validator_class: str
    delegation_token_secret_key: str | None
    delegation_token_max_lifetime_ms: int
    delegation_token_expiry_time_ms: int
    delegation_token_expiry_check_interval_ms: int
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
    socket_request_max_bytes: int
    socket_listen_backlog_size: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: str
    max_connection_creation_rate: int
    connections_max_idle_ms: int
    queued_max_requests: int
    queued_max_request_bytes: int
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    log_dir: list[str]
    log_dirs: list[str]
    log_dir_failure_timeout_ms: int
    num_recovery_threads_per_data_dir: int
    log_initial_task_delay_ms: int
    log_segment_bytes: int
    log_roll_ms: int
    log_roll_hours: int
    log_roll_jitter_ms: int
    log_roll_jitter_hours: int
    log_index_size_max_bytes: int
    log_index_interval_bytes: int
    log_preallocate: bool
    log_segment_delete_delay_ms: int
    log_retention_ms: int
    log_retention_minutes: int | None
    log_retention_hours: int
    log_retention_bytes: int
    log_local_retention_ms: int
    log_local_retention_bytes: int
    log_retention_check_interval_ms: int
    log_cleanup_policy: list[str]
    message_max_bytes: int
    log_message_timestamp_type: str
    log_message_timestamp_before_max_ms: int
    log_message_timestamp_after_max_ms: int
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    log_cleaner_enable: bool
    log_cleaner_threads: int
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_io_buffer_size: int
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_backoff_ms: int
    log_cleaner_min_cleanable_ratio: float
    log_cleaner_delete_retention_ms: int
    log_cleaner_min_compaction_lag_ms: int
    log_cleaner_max_compaction_lag_ms: int
    log_flush_interval_messages: int
    log_flush_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_flush_acks_all: bool
    zookeeper_connect: str | None
    zookeeper_session_timeout_ms: int
    zookeeper_connection_timeout_ms: int
    zookeeper_ssl_client_enable: bool
    zookeeper_clientCnxnSocket: str | None  # noqa: N815 the property is spelled like this
    zookeeper_ssl_keystore_location: str | None
    zookeeper_ssl_keystore_type: str | None
    zookeeper_ssl_keystore_password: str | None
    zookeeper_ssl_truststore_location: str | None
    zookeeper_ssl_truststore_type: str | None
    zookeeper_ssl_truststore_password: str | None
    zookeeper_ssl_endpoint_identification_algorithm: str
    zookeeper_ssl_protocol: str
    zookeeper_ssl_enabled_protocols: list[str]
    zookeeper_ssl_cipher_suites: list[str]
    zookeeper_set_acl: bool
    zookeeper_auth_scheme: str
    zookeeper_auth_user: str | None
    zookeeper_auth_password: str | None
    zookeeper_security: ZooKeeperSecurity
    """The properties for secure connections to ZooKeeper, together."""
    broker_lease_ms: int
    min_insync_replicas: int
    unclean_leader_election_enable: bool
    auto_leader_rebalance_enable: bool
    leader_imbalance_check_interval_seconds: int
    replica_lag_time_max_ms: int
    replica_socket_timeout_ms: int
    replica_socket_receive_buffer_bytes: int
    replica_fetch_max_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_fetch_min_bytes: int
    replica_fetch_backoff_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    replica_selector_class: str | None
    num_replica_fetchers: int
    leader_replication_throttled_rate: int
    follower_replication_throttled_rate: int
    quota_window_num: int
    quota_window_size_seconds: int
    replication_quota_window_num: int
    replication_quota_window_size_seconds: int
    controller_quota_window_num: int
    controller_quota_window_size_seconds: int
    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_initial_rebalance_delay_ms: int
    group_max_size: int
    group_coordinator_rebalance_protocols: list[str]
    group_coordinator_threads: int
    group_coordinator_append_linger_ms: int
    group_coordinator_cached_buffer_max_bytes: int
    group_consumer_session_timeout_ms: int
    group_consumer_min_session_timeout_ms: int
    group_consumer_max_session_timeout_ms: int
    group_consumer_heartbeat_interval_ms: int
    group_consumer_min_heartbeat_interval_ms: int
    group_consumer_max_heartbeat_interval_ms: int
    group_consumer_assignment_interval_ms: int
    group_consumer_min_assignment_interval_ms: int
    group_consumer_max_assignment_interval_ms: int
    group_consumer_max_size: int
    group_consumer_assignors: list[str]
    group_consumer_migration_policy: str
    group_consumer_regex_refresh_interval_ms: int
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    offsets_load_buffer_size: int
    offsets_retention_check_interval_ms: int
    offsets_retention_minutes: int
    offsets_topic_compression_codec: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    producer_id_expiration_ms: int
    producer_id_expiration_check_interval_ms: int
    transactional_id_expiration_ms: int
    transaction_max_timeout_ms: int
    transaction_state_log_min_isr: int
    transaction_state_log_load_buffer_size: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_segment_bytes: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    add_partitions_to_txn_retry_backoff_ms: int
    add_partitions_to_txn_retry_backoff_max_ms: int
    transaction_partition_verification_enable: bool
    transaction_two_phase_commit_enable: bool
    group_share_session_timeout_ms: int
    group_share_min_session_timeout_ms: int
    group_share_max_session_timeout_ms: int
    group_share_heartbeat_interval_ms: int
    group_share_min_heartbeat_interval_ms: int
    group_share_max_heartbeat_interval_ms: int
    group_share_assignment_interval_ms: int
    group_share_min_assignment_interval_ms: int
    group_share_max_assignment_interval_ms: int
    group_share_max_size: int
    group_share_assignors: list[str]
    group_share_delivery_count_limit: int
    group_share_min_delivery_count_limit: int
    group_share_max_delivery_count_limit: int
    group_share_record_lock_duration_ms: int
    group_share_min_record_lock_duration_ms: int
    group_share_max_record_lock_duration_ms: int
    group_share_partition_max_record_locks: int
    group_share_min_partition_max_record_locks: int
    group_share_max_partition_max_record_locks: int
    group_share_max_share_sessions: int
    group_share_initialize_retry_interval_ms: int
    share_coordinator_append_linger_ms: int
    share_coordinator_cached_buffer_max_bytes: int
    share_coordinator_cold_partition_snapshot_interval_ms: int
    share_coordinator_load_buffer_size: int
    share_coordinator_snapshot_update_records_per_snapshot: int
    share_coordinator_state_topic_compression_codec: int
    share_coordinator_state_topic_min_isr: int
    share_coordinator_state_topic_num_partitions: int
    share_coordinator_state_topic_prune_interval_ms: int
    share_coordinator_state_topic_replication_factor: int
    share_coordinator_state_topic_segment_bytes: int
    share_coordinator_write_timeout_ms: int
