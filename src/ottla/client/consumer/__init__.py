"""The consumer, for asyncio and blocking.

    config         properties
    record         public types: records, offsets and group metadata
    subscription   the assigned partitions and their positions (pure)
    fetched        data fetched from one partition, decoded as it is consumed (pure)
    buffer         fetched data that is not returned yet, and what the last poll returned (pure)
    priorities     which partitions come first
    fetch_request  builds Fetch requests, and fetches a single partition
    fetcher        keeps one fetch in flight per leader while there is room
    offsets        looks up offsets by timestamp, and the ends of partitions
    commits        fetches and commits the group's offsets
    positions      determines start positions: committed offsets, or `auto.offset.reset`
    rebalance      applies changes of the assignment while the user polls
    protocol       encodes and decodes the metadata of classic members (pure)
    assignors/     the assignors that the leader of a classic group runs (pure)
    membership     decides what a group member does next, for both protocols (pure)
    classic        member of a classic group
    consumer_protocol, consumer_protocol_state
                   member of a group of the consumer protocol (KIP-848); its decisions (pure)
    joining        chooses between the two protocols
    engine         connects all of these, for both classes; subscribing, waiting and failures
    async_consumer, consumer   the public classes
    table, read_table   records as Arrow tables

Threads: everything runs on the event loop, except that the blocking consumer takes records out of
the buffer in the user's thread (see `buffer`)."""
