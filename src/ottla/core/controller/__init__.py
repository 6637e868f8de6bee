"""What the controller decides: which topics exist, where partitions lie, and who leads them."""
