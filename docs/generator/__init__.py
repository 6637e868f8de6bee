"""Generators of documentation pages that are built from the code: see `hooks`."""
