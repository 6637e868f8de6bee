"""The metadata store of a cluster: an Apache ZooKeeper ensemble, by its own wire protocol.

    jute      requests and replies as bytes
    session   a session over connections that come and go; requests in order
    mirror    a subtree in memory, kept current by one recursive watch
    store     the MetadataStore port on top of these

kazoo was measured and does not fit inside a broker: its threads starve beside a busy event loop, it
has no recursive watches, and it never tells that a session was lost while cut off."""
