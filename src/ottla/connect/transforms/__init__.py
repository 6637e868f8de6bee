"""Kafka's single message transforms, under Kafka's names and with its options.

contract     what a transform and a predicate are; the part ($Key, $Value) that one works on
fields       InsertField, ReplaceField, MaskField, HoistField, ExtractField, ValueToKey
shape        Flatten, Cast, SetSchemaMetadata
timestamps   TimestampConverter
routing      RegexRouter, TimestampRouter, Filter
headers      HeaderFrom, InsertHeader, DropHeaders
function     any Python function
paths        fields of fields: `field.syntax.version`
predicates   TopicNameMatches, HasHeaderKey, RecordIsTombstone"""
