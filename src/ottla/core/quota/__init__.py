"""Client quotas: which one applies to a client, and how long it must wait.

precedence.py    finds the quota of a user and a client ID, or of an address
rate.py          limits bytes, time on the event loop and new connections
token_bucket.py  limits the partitions that are created and deleted
"""
