"""The libraries that the columnar codec requires. Raises a helpful error if one is missing."""

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
    from ottla.base.installation import install_extra

    raise ArrowMissing(
        f"Arrow tables need numba, numpy and pyarrow, and {error.name} is not installed. "
        f"Install them with: {install_extra('arrow')}"
    ) from None

__all__ = ["ArrowMissing", "numba", "numpy", "pyarrow"]
