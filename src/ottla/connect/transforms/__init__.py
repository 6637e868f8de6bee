"""Kafka's single message transforms, with Kafka's names and options.

contract     base classes of transforms and predicates; the part ($Key, $Value) that they change
fields       InsertField, ReplaceField, MaskField, HoistField, ExtractField, ValueToKey
shape        Flatten, Cast, SetSchemaMetadata
timestamps   TimestampConverter
routing      RegexRouter, TimestampRouter, Filter
headers      HeaderFrom, InsertHeader, DropHeaders
debezium     ExtractNewRecordState
function     Python functions as transforms
paths        nested fields: `field.syntax.version`
predicates   TopicNameMatches, HasHeaderKey, RecordIsTombstone
"""
