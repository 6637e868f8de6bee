"""The producer.

producer      AsyncProducer, and what both worlds share
blocking      Producer: the same for threads
intake        a record's way in: serialisers, partition, size, memory
partitioners  which partition
batch         records of one partition, encoded as they come; their common fate
accumulator   the batches that wait, and the memory they take
idempotence   producer id, epoch and sequences: what may be sent, and what becomes of a failure
sender        requests to brokers, answers, retries
future        a handle on one record's fate"""
