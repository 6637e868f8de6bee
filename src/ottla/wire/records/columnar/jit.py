"""Compilation of kernels, and the machine operations that they use.

A kernel is compiled when its module is imported, for exactly the declared signature. A call with
other types is an error, rather than a silent recompilation that takes seconds. Compilation takes
seconds, once: numba caches the code next to the source, in the user's cache directory or in
`NUMBA_CACHE_DIR`, or not at all if none of these is writable. Kernels release the GIL.

Nothing here checks bounds. `peek` and the other functions read and write at any position, so each
kernel must establish that its positions are valid. `copy` is memcpy of the C library.

numba's cache notices changes in a kernel's own file, but not in this one. Remove the `*.nbi` files
after changing this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.wire.records.columnar.requirements import numba, numpy

types = numba.types
INT32_ARRAY = types.Array(types.int32, 1, "C")
INT64_ARRAY = types.Array(types.int64, 1, "C")
BYTE_ARRAY = types.Array(types.uint8, 1, "C")
INPUT_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
INPUT_INT32 = types.Array(types.int32, 1, "C", readonly=True)
INPUT_INT64 = types.Array(types.int64, 1, "C", readonly=True)
INPUT_TABLE = types.Array(types.int64, 2, "C", readonly=True)
OUTPUT_TABLE = types.Array(types.int64, 2, "C")

_NO_BYTES = numpy.empty(0, numpy.uint8)
_NO_BYTES.setflags(write=False)


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles a function for one signature, or loads it from the cache."""

    def compiled(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(signature, nogil=True, cache=True, boundscheck=False)(function)
        except Exception:  # the cache directory is not writable, full or damaged
            return numba.njit(signature, nogil=True, cache=False, boundscheck=False)(function)

    return compiled


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a helper function that is inlined into kernels."""
    return numba.njit(nogil=True, forceinline=True, boundscheck=False)(function)


def not_inlined(function: Callable[..., Any]) -> Any:
    """Compile a helper function that is rarely called and kept out of the kernels' loops."""
    return numba.njit(nogil=True, inline="never", boundscheck=False)(function)


def as_input(buffer: Any) -> Any:
    """Return a contiguous buffer as a read-only byte array for a kernel, without copying."""
    if buffer is None or not len(buffer):
        return _NO_BYTES
    array = numpy.frombuffer(buffer, numpy.uint8)
    array.setflags(write=False)
    return array


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    from numba.core import cgutils

    data = context.make_array(array_type)(context, builder, array).data
    bits = cgutils.voidptr_t
    start = builder.bitcast(data, bits)
    return builder.gep(start, [index])


def _load(returned: Any, is_big_endian: bool = False) -> Any:
    @numba.extending.intrinsic
    def load(typing_context: Any, array: Any, position: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = context.get_value_type(returned)
            place = _pointer(context, builder, signature.args[0], *arguments)
            found = builder.load(builder.bitcast(place, kind.as_pointer()))
            found.align = 1
            return builder.bswap(found) if is_big_endian else found

        return returned(array, types.int64), generate

    return load


def _store(stored: Any, is_big_endian: bool = False) -> Any:
    @numba.extending.intrinsic
    def store(typing_context: Any, array: Any, position: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            target, index, number = arguments
            kind = context.get_value_type(stored)
            place = _pointer(context, builder, signature.args[0], target, index)
            if is_big_endian:
                number = builder.bswap(number)
            written = builder.store(number, builder.bitcast(place, kind.as_pointer()))
            written.align = 1
            return context.get_dummy_value()

        return types.void(array, types.int64, stored), generate

    return store


peek = _load(types.uint8)
"""`peek(array, position)`: read one byte."""
load_int32 = _load(types.int32)
"""`load_int32(array, position)`: read a little-endian int32 at any byte position."""
load_int64 = _load(types.int64)
load_uint32 = _load(types.uint32)
load_big_int16 = _load(types.int16, is_big_endian=True)
load_big_int32 = _load(types.int32, is_big_endian=True)
load_big_int64 = _load(types.int64, is_big_endian=True)
poke = _store(types.uint8)
"""`poke(array, position, byte)`: write one byte."""
store_big_int16 = _store(types.int16, is_big_endian=True)
store_big_int32 = _store(types.int32, is_big_endian=True)
store_big_int64 = _store(types.int64, is_big_endian=True)


def _copy(
    typing_context: Any, target: Any, target_position: Any, source: Any, position: Any, size: Any
) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        from numba.core import cgutils

        raw_memcpy: Any = cgutils.raw_memcpy
        to, to_index, origin, index, count = arguments
        raw_memcpy(
            builder,
            _pointer(context, builder, signature.args[0], to, to_index),
            _pointer(context, builder, signature.args[2], origin, index),
            count,
            1,
        )
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate


def _prefetch(typing_context: Any, array: Any, position: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        from llvmlite import ir

        place = _pointer(context, builder, signature.args[0], *arguments)
        kinds = [place.type, ir.IntType(32), ir.IntType(32), ir.IntType(32)]
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [place.type], ir.FunctionType(ir.VoidType(), kinds)
        )
        for_reading, keep, of_data = (ir.Constant(ir.IntType(32), flag) for flag in (0, 3, 1))
        builder.call(function, [place, for_reading, keep, of_data])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


copy: Any = numba.extending.intrinsic(_copy)
"""`copy(target, target_position, source, position, size)`: memcpy between two arrays."""
prefetch: Any = numba.extending.intrinsic(_prefetch)
"""`prefetch(array, position)`: start loading a cache line. Any position is allowed."""
