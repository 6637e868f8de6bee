"""Simulated environment in memory: time, disks, network and ZooKeeper, repeatable for a seed."""
