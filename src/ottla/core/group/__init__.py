"""Group coordinator decisions: membership, rebalances and committed offsets. No I/O."""
