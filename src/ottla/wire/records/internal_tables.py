"""Schemas of the keys and values of Kafka's internal records, as tables with one line per field.

    Name apiKey versions first-flexible-version      "-": none
      field type [versions] [? nullable] [#tag]      nested fields are indented

A version range is `2` (only that version), `1-3` or `2+`; a field without one is in every version.
`?` marks a field that is nullable in all of its versions. `#0` is the tag of a tagged field of a
flexible version. `[]` is an array of structs with the fields below it, `[]int32` an array of
numbers, `{}` a struct.

The tables are those of Apache Kafka 4.3. Later versions add only tagged fields (KIP-915), so newer
records can be read as well.
"""

from __future__ import annotations

GROUP = """
LegacyOffsetCommitKey 0 0 -
  group string
  topic string
  partition int32
LegacyOffsetCommitValue 0 0 -
  offset int64 0
  metadata string
  commitTimestamp int64 0
OffsetCommitKey 1 0 -
  group string
  topic string
  partition int32
OffsetCommitValue 1 0-4 4
  offset int64
  leaderEpoch int32 3+
  metadata string
  commitTimestamp int64
  expireTimestamp int64 1
  topicId uuid 4+ #0
GroupMetadataKey 2 0 -
  group string
GroupMetadataValue 2 0-4 4
  protocolType string
  generation int32
  protocol string ?
  leader string ?
  currentStateTimestamp int64 2+
  members []
    memberId string
    groupInstanceId string 3+ ?
    clientId string
    clientHost string
    rebalanceTimeout int32 1+
    sessionTimeout int32
    subscription bytes
    assignment bytes
ConsumerGroupMetadataKey 3 0 -
  groupId string
ConsumerGroupMetadataValue 3 0 0
  epoch int32
  metadataHash int64 #0
ConsumerGroupPartitionMetadataKey 4 0 -
  groupId string
ConsumerGroupPartitionMetadataValue 4 0 0
  topics []
    topicId uuid
    topicName string
    numPartitions int32
    partitionMetadata []
      partition int32
      racks []string
ConsumerGroupMemberMetadataKey 5 0 -
  groupId string
  memberId string
ConsumerGroupMemberMetadataValue 5 0 0
  instanceId string ?
  rackId string ?
  clientId string
  clientHost string
  subscribedTopicNames []string
  subscribedTopicRegex string ?
  rebalanceTimeoutMs int32
  serverAssignor string ?
  classicMemberMetadata {} ? #0
    sessionTimeoutMs int32
    supportedProtocols []
      name string
      metadata bytes
ConsumerGroupTargetAssignmentMetadataKey 6 0 -
  groupId string
ConsumerGroupTargetAssignmentMetadataValue 6 0 0
  assignmentEpoch int32
  assignmentTimestamp int64 #0
ConsumerGroupTargetAssignmentMemberKey 7 0 -
  groupId string
  memberId string
ConsumerGroupTargetAssignmentMemberValue 7 0 0
  topicPartitions []
    topicId uuid
    partitions []int32
ConsumerGroupCurrentMemberAssignmentKey 8 0 -
  groupId string
  memberId string
ConsumerGroupCurrentMemberAssignmentValue 8 0 0
  memberEpoch int32
  previousMemberEpoch int32
  state int8
  assignedPartitions []
    topicId uuid
    partitions []int32
    assignmentEpochs []int32 ? #0
  partitionsPendingRevocation []
    topicId uuid
    partitions []int32
    assignmentEpochs []int32 ? #0
ShareGroupMemberMetadataKey 10 0 -
  groupId string
  memberId string
ShareGroupMemberMetadataValue 10 0 0
  rackId string ?
  clientId string
  clientHost string
  subscribedTopicNames []string
ShareGroupMetadataKey 11 0 -
  groupId string
ShareGroupMetadataValue 11 0 0
  epoch int32
  metadataHash int64
ShareGroupTargetAssignmentMetadataKey 12 0 -
  groupId string
ShareGroupTargetAssignmentMetadataValue 12 0 0
  assignmentEpoch int32
  assignmentTimestamp int64 #0
ShareGroupTargetAssignmentMemberKey 13 0 -
  groupId string
  memberId string
ShareGroupTargetAssignmentMemberValue 13 0 0
  topicPartitions []
    topicId uuid
    partitions []int32
ShareGroupCurrentMemberAssignmentKey 14 0 -
  groupId string
  memberId string
ShareGroupCurrentMemberAssignmentValue 14 0 0
  memberEpoch int32
  previousMemberEpoch int32
  state int8
  assignedPartitions []
    topicId uuid
    partitions []int32
ShareGroupStatePartitionMetadataKey 15 0 -
  groupId string
ShareGroupStatePartitionMetadataValue 15 0 0
  initializingTopics []
    topicId uuid
    topicName string
    partitions []int32
  initializedTopics []
    topicId uuid
    topicName string
    partitions []int32
  deletingTopics []
    topicId uuid
    topicName string
ConsumerGroupRegularExpressionKey 16 0 -
  groupId string
  regularExpression string
ConsumerGroupRegularExpressionValue 16 0 0
  topics []string
  version int64
  timestamp int64
StreamsGroupMetadataKey 17 0 -
  groupId string
StreamsGroupMetadataValue 17 0 0
  epoch int32
  metadataHash int64
  validatedTopologyEpoch int32 #0
  lastAssignmentConfigs [] ? #1
    key string
    value string
StreamsGroupMemberMetadataKey 19 0 -
  groupId string
  memberId string
StreamsGroupMemberMetadataValue 19 0 0
  instanceId string ?
  rackId string ?
  clientId string
  clientHost string
  rebalanceTimeoutMs int32
  topologyEpoch int32
  processId string
  userEndpoint {} ?
    host string
    port uint16
  clientTags []
    key string
    value string
StreamsGroupTargetAssignmentMetadataKey 20 0 -
  groupId string
StreamsGroupTargetAssignmentMetadataValue 20 0 0
  assignmentEpoch int32
  assignmentTimestamp int64 #0
StreamsGroupTargetAssignmentMemberKey 21 0 -
  groupId string
  memberId string
StreamsGroupTargetAssignmentMemberValue 21 0 0
  activeTasks []
    subtopologyId string
    partitions []int32
  standbyTasks []
    subtopologyId string
    partitions []int32
  warmupTasks []
    subtopologyId string
    partitions []int32
StreamsGroupCurrentMemberAssignmentKey 22 0 -
  groupId string
  memberId string
StreamsGroupCurrentMemberAssignmentValue 22 0 0
  memberEpoch int32
  previousMemberEpoch int32
  state int8
  activeTasks []
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32 ? #0
  standbyTasks []
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32 ? #0
  warmupTasks []
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32 ? #0
  activeTasksPendingRevocation []
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32 ? #0
  standbyTasksPendingRevocation []
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32 ? #0
  warmupTasksPendingRevocation []
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32 ? #0
StreamsGroupTopologyKey 23 0 -
  groupId string
StreamsGroupTopologyValue 23 0 0
  epoch int32
  subtopologies []
    subtopologyId string
    sourceTopics []string
    sourceTopicRegex []string
    stateChangelogTopics []
      name string
      partitions int32
      replicationFactor int16
      topicConfigs []
        key string
        value string
    repartitionSinkTopics []string
    repartitionSourceTopics []
      name string
      partitions int32
      replicationFactor int16
      topicConfigs []
        key string
        value string
    copartitionGroups []
      sourceTopics []int16
      sourceTopicRegex []int16
      repartitionSourceTopics []int16
"""
"""Records of the topic `__consumer_offsets`: a key and a value for each apiKey."""

TRANSACTION = """
TransactionLogKey 0 0 -
  transactionalId string
TransactionLogValue 0 0-1 1
  producerId int64
  previousProducerId int64 1+ #0
  nextProducerId int64 1+ #1
  producerEpoch int16
  nextProducerEpoch int16 1+ #3
  transactionTimeoutMs int32
  transactionStatus int8
  transactionPartitions [] ?
    topic string
    partitionIds []int32
  transactionLastUpdateTimestampMs int64
  transactionStartTimestampMs int64
  clientTransactionVersion int16 1+ #2
"""
"""Records of the topic `__transaction_state`."""

SHARE_STATE = """
ShareSnapshotKey 0 0 -
  groupId string
  topicId uuid
  partition int32
ShareSnapshotValue 0 0 0
  snapshotEpoch int32
  stateEpoch int32
  leaderEpoch int32
  startOffset int64
  deliveryCompleteCount int32 #0
  createTimestamp int64
  writeTimestamp int64
  stateBatches []
    firstOffset int64
    lastOffset int64
    deliveryState int8
    deliveryCount int16
ShareUpdateKey 1 0 -
  groupId string
  topicId uuid
  partition int32
ShareUpdateValue 1 0 0
  snapshotEpoch int32
  leaderEpoch int32
  startOffset int64
  deliveryCompleteCount int32 #0
  stateBatches []
    firstOffset int64
    lastOffset int64
    deliveryState int8
    deliveryCount int16
"""
"""Records of the topic `__share_group_state`."""

CONSUMER_PROTOCOL = """
ConsumerProtocolAssignment - 0-3 -
  assignedPartitions []
    topic string
    partitions []int32
  userData bytes ?
ConsumerProtocolSubscription - 0-3 -
  topics []string
  userData bytes ?
  ownedPartitions [] 1+
    topic string 1+
    partitions []int32 1+
  generationId int32 2+
  rackId string 3+ ?
"""
"""Subscriptions and assignments that the members of a classic consumer group exchange."""

CONTROL = """
KRaftVersionRecord - 0 0
  version int16
  kRaftVersion int16
LeaderChangeMessage - 0-1 0
  version int16
  leaderId int32
  voters []
    voterId int32
    voterDirectoryId uuid 1+
  grantingVoters []
    voterId int32
    voterDirectoryId uuid 1+
SnapshotFooterRecord - 0 0
  version int16
SnapshotHeaderRecord - 0 0
  version int16
  lastContainedLogTimestamp int64
VotersRecord - 0 0
  version int16
  voters []
    voterId int32
    voterDirectoryId uuid
    endpoints []
      name string
      host string
      port uint16
    kRaftVersionFeature {}
      minSupportedVersion int16
      maxSupportedVersion int16
"""
"""Control records of a KRaft log."""

METADATA = """
RegisterBrokerRecord 0 0-4 0
  brokerId int32
  isMigratingZkBroker bool 2+
  incarnationId uuid
  brokerEpoch int64
  endPoints []
    name string
    host string
    port uint16
    securityProtocol int16
  features []
    name string
    minSupportedVersion int16
    maxSupportedVersion int16
  rack string ?
  fenced bool
  inControlledShutdown bool 1+
  logDirs []uuid 3+ #0
  cordonedLogDirs []uuid 4+ ? #1
UnregisterBrokerRecord 1 0 0
  brokerId int32
  brokerEpoch int64
TopicRecord 2 0 0
  name string
  topicId uuid
PartitionRecord 3 0-2 0
  partitionId int32
  topicId uuid
  replicas []int32
  isr []int32
  removingReplicas []int32
  addingReplicas []int32
  leader int32
  leaderRecoveryState int8 #0
  leaderEpoch int32
  partitionEpoch int32
  directories []uuid 1+
  eligibleLeaderReplicas []int32 2+ ? #1
  lastKnownElr []int32 2+ ? #2
ConfigRecord 4 0 0
  resourceType int8
  resourceName string
  name string
  value string ?
PartitionChangeRecord 5 0-2 0
  partitionId int32
  topicId uuid
  isr []int32 ? #0
  leader int32 #1
  replicas []int32 ? #2
  removingReplicas []int32 ? #3
  addingReplicas []int32 ? #4
  leaderRecoveryState int8 #5
  directories []uuid 1+ ? #8
  eligibleLeaderReplicas []int32 2+ ? #6
  lastKnownElr []int32 2+ ? #7
FenceBrokerRecord 7 0 0
  id int32
  epoch int64
UnfenceBrokerRecord 8 0 0
  id int32
  epoch int64
RemoveTopicRecord 9 0 0
  topicId uuid
DelegationTokenRecord 10 0 0
  owner string
  requester string
  renewers []string
  issueTimestamp int64
  maxTimestamp int64
  expirationTimestamp int64
  tokenId string
UserScramCredentialRecord 11 0 0
  name string
  mechanism int8
  salt bytes
  storedKey bytes
  serverKey bytes
  iterations int32
FeatureLevelRecord 12 0 0
  name string
  featureLevel int16
ClientQuotaRecord 14 0 0
  entity []
    entityType string
    entityName string ?
  key string
  value float64
  remove bool
ProducerIdsRecord 15 0 0
  brokerId int32
  brokerEpoch int64
  nextProducerId int64
BrokerRegistrationChangeRecord 17 0-3 0
  brokerId int32
  brokerEpoch int64
  fenced int8 #0
  inControlledShutdown int8 1+ #1
  logDirs []uuid 2+ #2
  cordonedLogDirs []uuid 3+ ? #3
AccessControlEntryRecord 18 0 0
  id uuid
  resourceType int8
  resourceName string
  patternType int8
  principal string
  host string
  operation int8
  permissionType int8
RemoveAccessControlEntryRecord 19 0 0
  id uuid
NoOpRecord 20 0 0
ZkMigrationStateRecord 21 0 0
  zkMigrationState int8
RemoveUserScramCredentialRecord 22 0 0
  name string
  mechanism int8
BeginTransactionRecord 23 0 0
  name string ? #0
EndTransactionRecord 24 0 0
AbortTransactionRecord 25 0 0
  reason string ? #0
RemoveDelegationTokenRecord 26 0 0
  tokenId string
RegisterControllerRecord 27 0 0
  controllerId int32
  incarnationId uuid
  zkMigrationReady bool
  endPoints []
    name string
    host string
    port uint16
    securityProtocol int16
  features []
    name string
    minSupportedVersion int16
    maxSupportedVersion int16
ClearElrRecord 28 0 0
  topicName string
"""
"""Records of the topic `__cluster_metadata`, which have values only."""
