"""What `__init__.py` loads when it is first used, for type checkers."""

from ottla.base.types import TopicPartition as TopicPartition
from ottla.client.admin import Admin as Admin
from ottla.client.admin import AsyncAdmin as AsyncAdmin
from ottla.client.admin import NewTopic as NewTopic
from ottla.client.consumer.async_consumer import AsyncConsumer as AsyncConsumer
from ottla.client.consumer.consumer import Consumer as Consumer
from ottla.client.consumer.read_table import read_batches as read_batches
from ottla.client.consumer.read_table import read_table as read_table
from ottla.client.consumer.rebalance import RebalanceListener as RebalanceListener
from ottla.client.consumer.record import GroupMetadata as GroupMetadata
from ottla.client.consumer.record import OffsetAndMetadata as OffsetAndMetadata
from ottla.client.consumer.record import OffsetAndTimestamp as OffsetAndTimestamp
from ottla.client.consumer.record import Record as Record
from ottla.client.consumer.record import SubscriptionPattern as SubscriptionPattern
from ottla.client.errors import AuthenticationFailed as AuthenticationFailed
from ottla.client.errors import AuthorizationFailed as AuthorizationFailed
from ottla.client.errors import BrokersUnreachable as BrokersUnreachable
from ottla.client.errors import BufferFull as BufferFull
from ottla.client.errors import ClientClosed as ClientClosed
from ottla.client.errors import ClientError as ClientError
from ottla.client.errors import CommitFailed as CommitFailed
from ottla.client.errors import ConnectionLost as ConnectionLost
from ottla.client.errors import DeserializationFailed as DeserializationFailed
from ottla.client.errors import InvalidConfig as InvalidConfig
from ottla.client.errors import KafkaError as KafkaError
from ottla.client.errors import KafkaTimeout as KafkaTimeout
from ottla.client.errors import NoOffsetForPartition as NoOffsetForPartition
from ottla.client.errors import OffsetOutOfRange as OffsetOutOfRange
from ottla.client.errors import ProducerFenced as ProducerFenced
from ottla.client.errors import RecordTooLarge as RecordTooLarge
from ottla.client.errors import SerializationFailed as SerializationFailed
from ottla.client.errors import TransactionAborted as TransactionAborted
from ottla.client.errors import TransactionFailed as TransactionFailed
from ottla.client.errors import UnknownTopic as UnknownTopic
from ottla.client.errors import UnsupportedVersion as UnsupportedVersion
from ottla.client.errors import UserError as UserError
from ottla.client.producer.blocking import Producer as Producer
from ottla.client.producer.future import RecordFuture as RecordFuture
from ottla.client.producer.future import RecordMetadata as RecordMetadata
from ottla.client.producer.partitioners import PriorityPartitioner as PriorityPartitioner
from ottla.client.producer.partitioners import RoundRobinPartitioner as RoundRobinPartitioner
from ottla.client.producer.producer import AsyncProducer as AsyncProducer
from ottla.client.producer.table_future import TableFuture as TableFuture
from ottla.client.producer.table_future import TableMetadata as TableMetadata

__version__: str
