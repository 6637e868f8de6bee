"""Replication decisions: ISR membership, high watermark, leases and log divergence."""
