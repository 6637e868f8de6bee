"""Cluster metadata: the tree in the metadata store, and its image in memory."""
