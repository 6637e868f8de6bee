"""What the cluster agrees on: the tree in a store, and its image in memory."""
