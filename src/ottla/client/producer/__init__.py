"""The producer.

producer        AsyncProducer, and what both worlds share
blocking        Producer: the same for threads
intake          a record's way in: serialisers, partition, size, memory
record_fields   what users give as key, value, headers and timestamp
partitioners    which partition
batch           records of one partition, encoded as they come; their common fate
accumulator     the batches that wait, and the memory they take
idempotence     sequences: what may be sent, and what becomes of a failure
identity        producer id and epoch, got from brokers
transaction     the same with a transactional id: what its coordinator is asked, and when
sender          requests to brokers, answers, retries
produce_request the requests themselves
future          a handle on one record's fate; `ending` waits for whole batches
table           rows of Arrow tables as batches; `table_future` is the handle on their fate"""
