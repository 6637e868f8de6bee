from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numba.core import caching

from ottla.base.installation import install_extra
from ottla.wire.records.columnar.jit import BYTE_ARRAY, kernel, types


def test_without_its_libraries_the_codec_names_what_to_install() -> None:
    for library in ("numba", "numpy", "pyarrow"):
        script = (
            f"import sys; sys.modules[{library!r}] = None\n"
            "from ottla.base.errors import UserError\n"
            "try: import ottla.wire.records.columnar.decode\n"
            "except ImportError as error: print(isinstance(error, UserError), error)"
        )
        path = f"import sys; sys.path[:] = {sys.path!r}\n"
        result = subprocess.run(
            [sys.executable, "-c", path + script],
            stdout=subprocess.PIPE,
            text=True,
            timeout=60,
            check=True,
        )
        assert result.stdout == (
            f"True Arrow tables need numba, numpy and pyarrow, and {library} is not installed. "
            f"Install them with: {install_extra('arrow')}\n"
        )


def _add(array: Any, number: Any) -> Any:
    return array.shape[0] + number


def _compiled_and_used() -> Any:
    compiled = kernel(types.int64(BYTE_ARRAY, types.int64))(_add)
    assert compiled(np.zeros(3, np.uint8), 4) == 7
    return compiled


def test_kernels_compile_where_no_cache_folder_can_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(caching.CompileResultCacheImpl, "_locator_classes", [])
    _compiled_and_used()


def test_kernels_compile_where_the_cache_cannot_be_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(caching.IndexDataCacheFile, "save", full)
    monkeypatch.setattr(caching.IndexDataCacheFile, "load", lambda *_: None)
    _compiled_and_used()


def test_kernels_compile_where_the_cache_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(*_: object) -> None:
        raise pickle.UnpicklingError("pickle data was truncated")

    monkeypatch.setattr(caching.IndexDataCacheFile, "load", damaged)
    _compiled_and_used()


def test_a_call_with_another_type_is_an_error_and_not_a_compilation() -> None:
    compiled = _compiled_and_used()
    with pytest.raises(TypeError, match="No matching definition"):
        compiled(np.zeros(3, np.float64), 4)
    assert len(compiled.signatures) == 1
