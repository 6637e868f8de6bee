"""Groups of consumers, decided without I/O: membership, rebalances, committed offsets."""
