"""The libraries that the columnar codec needs, or one sentence about them."""

from __future__ import annotations

from ottla.base.errors import UserError


class ArrowMissing(UserError, ImportError):
    """The `arrow` extra is not installed."""


try:
    import numba
    import numba.extending
    import numpy
    import pyarrow
except ImportError as error:
    raise ArrowMissing(
        f"Arrow tables need numba, numpy and pyarrow (no {error.name}): pip install ottla[arrow]"
    ) from None

__all__ = ["ArrowMissing", "numba", "numpy", "pyarrow"]
