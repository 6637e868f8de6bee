"""Transactions: who has one open, what it touches, how it ends."""
