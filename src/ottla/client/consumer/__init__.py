"""Consuming: the asyncio class does the work, the blocking one drives it from the user's thread.

    config         properties
    record         what a user is handed: records, offsets, metadata of the group
    subscription   which partitions are consumed and from where (pure)
    decode         a batch's bytes as records (pure)
    fetched        a fetched partition's bytes, turned into records as they are handed out (pure)
    buffer         what was fetched and not handed out yet; what was handed out last (pure)
    priorities     which partitions come first
    fetcher        keeps one fetch under way at every leader while there is room
    offsets        offsets by time, the ends of partitions
    commits        what a group has committed, and committing
    positions      finds where to begin: committed, or `auto.offset.reset`
    rebalance      changes of the assignment, made while the user polls
    protocol       what members of classic groups tell each other, as bytes (pure)
    assignors/     how the leader of a classic group shares partitions (pure)
    membership     what a member does next, in both protocols (pure)
    classic        a member of a classic group
    modern_state, modern   a member of a group of the new protocol (KIP-848); its decisions (pure)
    joining        which of the two protocols
    engine         all of these, joined; subscribing, waiting, failing
    async_consumer, consumer   the public classes
    table, read_table   the same as Arrow tables

Threads: everything lives on the event loop, but for taking records out of the buffer, which the
blocking consumer does in the user's thread (see `buffer`)."""
