"""What only scripts of hidet 0.6 call of `hidet.lang.cuda`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hidet
from hidet import dtypes
from hidet.errors import ScriptError
from hidet.ir.types import PointerType
from hidet.lang import ScriptFunction, attrs, i64, operators, u8
from hidet.lang.cuda import blockIdx, threadIdx
from hidet.lang.values import Primitive

if TYPE_CHECKING:
    from hidet.lang.translator import Translator

_THREADS = 256


@hidet.script
def copy_bytes(target: ~u8, source: ~u8, count: i64):  # type: ignore[valid-type, no-untyped-def]  # a script
    attrs.cuda.grid_dim = (count + _THREADS - 1) // _THREADS
    attrs.cuda.block_dim = _THREADS
    place = blockIdx.x * _THREADS + threadIdx.x
    if place < count:
        target[place] = source[place]


def _memcpy(translator: Translator, dst: Any, src: Any, count: Any, *more: Any, **named: Any) -> None:
    """Copy `count` bytes of a device's memory, in the order of launches. A direction or stream is not read: kernels
    run on the stream of the call. ScriptError in a kernel."""
    kind = translator.attributes.kind
    if kind in ("kernel", "device"):
        raise ScriptError("memcpy stands in functions of the host", hint="a kernel copies element by element")
    pointers = [operators.cast(operators.decayed(given), PointerType(dtypes.u8)) for given in (dst, src)]
    copy_bytes.call_from_script(translator, [*pointers, count], {})


memcpy = Primitive("memcpy", _memcpy)
memcpy_async = Primitive("memcpy_async", _memcpy)


def _reserve(translator: Translator, func: Any, max_dynamic_smem_bytes: Any) -> None:
    """Nothing to do: a launch reserves what `attrs.cuda.dynamic_smem_bytes` says. ScriptError where that is more."""
    if not isinstance(func, ScriptFunction) or func.launch is None:
        raise ScriptError("set_kernel_max_dynamic_smem_bytes takes a kernel")
    wanted = getattr(func.launch.shared_bytes, "value", None)
    if isinstance(wanted, int) and isinstance(max_dynamic_smem_bytes, int) and wanted > max_dynamic_smem_bytes:
        raise ScriptError(f"{func.name} takes {wanted} bytes of shared memory, more than {max_dynamic_smem_bytes}")


set_kernel_max_dynamic_smem_bytes = Primitive("set_kernel_max_dynamic_smem_bytes", _reserve)


def _quotient(op: str) -> Any:
    def compute(translator: Translator, dividend: Any, divisor: Any, *magic: Any) -> Any:
        # By a number that is known, the target's compiler multiplies; numbers to multiply by are not read.
        return operators.binary(op, operators.as_expr(dividend), divisor)

    return compute


fast_intdiv = Primitive("fast_intdiv", _quotient("floordiv"))
fast_intmod = Primitive("fast_intmod", _quotient("mod"))
