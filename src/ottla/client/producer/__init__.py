"""The producer.

async_producer, producer   the public classes
engine          connects all of these, for both classes
record_appender accepts a record: serializers, partition, size and memory
record_fields   checks and converts a record's key, value, headers and timestamp
partitioners    choose a partition
batch           encoded records of one partition, sent and acknowledged together
accumulator     batches that wait to be sent, and the memory they occupy
idempotence     sequence numbers: what may be sent, and how to react to a failure
identity        the producer ID and epoch, obtained from brokers
transaction     the same with a transactional ID: phases of a transaction
transaction_coordinator   requests to the transaction coordinator
sender          Produce requests, responses and retries
produce_request builds requests and reads responses
future          future of one record; `completion` waits for whole batches
table, row_encoder   encode rows of Arrow tables as batches; `table_future` is their future"""
