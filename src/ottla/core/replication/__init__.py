"""Replication's decisions: who is in sync, what is committed, who may lead."""
