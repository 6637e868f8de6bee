"""Generators of modules that follow from schemas and tables; `make codegen` runs them."""
