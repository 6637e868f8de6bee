"""Transaction coordinator decisions: producer ids and epochs, partitions, and outcomes."""
