"""Metadata store of a cluster: a client for Apache ZooKeeper's wire protocol.

    jute      requests and replies as bytes
    session   a session across reconnects, with requests in order
    mirror    a subtree in memory, kept current by one recursive watch
    store     the MetadataStore port on top of these

kazoo was measured and is not suitable for a broker: its threads starve beside a busy event loop, it
has no recursive watches, and it does not report a session that expired while disconnected.
"""
