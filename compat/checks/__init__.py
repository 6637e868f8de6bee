"""Checks by subject; `compat/run` lists them all."""
