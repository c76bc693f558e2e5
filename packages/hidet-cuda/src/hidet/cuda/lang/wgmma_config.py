"""Products of a warp group by name, which elements its threads hold, and how operands in shared memory are described.

config = WgmmaConfig.get(64, 128, 16, "f16", "f16", "f32")
b = make_wgmma_desc(128, 256, 0) | matrix_address(~tile_b[0, 0])
wgmma_async(config, a, sums, b)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hidet import dtypes
from hidet.cuda.intrinsics.mma import matrix_name
from hidet.cuda.intrinsics.wgmma import WGMMA
from hidet.cuda.lang.product_config import ProductConfig
from hidet.cuda.lang.rows import find_row
from hidet.dtypes import DType
from hidet.errors import ScriptError, suggestion
from hidet.ir.expr import Expr
from hidet.lang import operators
from hidet.lang.intrinsics import IntrinsicFunction
from hidet.lang.mapping import TaskMapping, column_repeat, repeat, spatial
from hidet.lang.operand import unwrapped


@dataclass(frozen=True, slots=True)
class WgmmaConfig(ProductConfig):
    """D[64, n] = A[64, k] B[k, n] + D[64, n] by the 128 threads of a warp group of sm_90a, in the background.

    Rows of A have 32 bytes. A thread holds `c_elements` of D and, where A lies in registers, `a_elements` of it; the
    maps say which ones.
    """

    threads = 128

    @staticmethod
    def get(m: int, n: int, k: int, a_input_dtype: Any, b_input_dtype: Any, output_dtype: Any) -> WgmmaConfig:
        """The product of this shape and these types, which may be names. ScriptError where the hardware has none."""
        a, b, out = (_dtype(given).short for given in (a_input_dtype, b_input_dtype, output_dtype))
        wanted = (m, n, k, a, b, out)
        found = _CONFIGS.get(wanted)
        if found is None:
            names = [str(config) for config in _CONFIGS.values()]
            name = f"m{m}n{n}k{k}_{a}_{b}_{out}"
            raise ScriptError(f"a warp group has no product {name}", hint=suggestion(name, names))
        return found

    @staticmethod
    def all() -> list[WgmmaConfig]:
        """What there is."""
        return list(_CONFIGS.values())

    @property
    def a_input_dtype(self) -> DType:
        """Type of A."""
        return self.shape.a

    @property
    def b_input_dtype(self) -> DType:
        """Type of B."""
        return self.shape.b

    @property
    def a_regs(self) -> int:
        """Registers of A that a thread holds."""
        return self.a_elements * self.shape.a.nbytes // 4

    @property
    def c_regs(self) -> int:
        """Registers of D that a thread holds."""
        return self.c_elements * self.shape.accumulator.nbytes // 4

    @property
    def a_load_map(self) -> TaskMapping:
        """Row and column of the elements of A that a thread holds, in order."""
        run = 4 // self.shape.a.nbytes
        return spatial(4, 1) * column_repeat(2, 2) * spatial(8, 4) * repeat(1, run)

    @property
    def c_store_map(self) -> TaskMapping:
        """Row and column of the elements of D that a thread holds, in order."""
        return spatial(4, 1) * column_repeat(2, self.n // 8) * spatial(8, 4) * repeat(1, 2)

    def __str__(self) -> str:
        types = (self.shape.a, self.shape.b, self.shape.accumulator)
        return f"m{self.m}n{self.n}k{self.k}_{'_'.join(dtype.short for dtype in types)}"


def _dtype(given: Any) -> DType:
    return dtypes.dtype(getattr(given, "type", given))


_SHAPES = dict.fromkeys(row.matrix for row in WGMMA.values() if row.matrix is not None)
_CONFIGS = {(s.m, s.n, s.k, s.a.short, s.b.short, s.accumulator.short): WgmmaConfig(s) for s in _SHAPES}


def make_wgmma_desc(lead_dim_offset: int, stride_dim_offset: int, layout_type: int) -> int:
    """What describes an operand in shared memory, but for its address (PTX ISA, "Matrix Descriptor").

    lead_dim_offset, stride_dim_offset: bytes from one block of 8 rows and 16 bytes to the next one along k, and along
    the rows. layout_type: 0 for blocks that lie for themselves; 1, 2, 3 for swizzled rows of 128, 64, 32 bytes.
    ScriptError for offsets that are no multiples of 16.
    """
    offsets = (lead_dim_offset, stride_dim_offset)
    if any(offset % 16 or not 0 <= offset < 1 << 18 for offset in offsets) or layout_type not in range(4):
        raise ScriptError(
            f"make_wgmma_desc got offsets {offsets} and layout {layout_type!r}",
            hint="offsets are multiples of 16 below 262144, layouts 0 to 3",
        )
    return lead_dim_offset // 16 << 16 | stride_dim_offset // 16 << 32 | layout_type << 62


def matrix_address(place: Any) -> Any:
    """The part of a descriptor that says where in shared memory an operand begins: `make_wgmma_desc(...) | this`."""
    address = operators.binary("and", find_row("cuda.shared_address")(place), 0x3FFFF)
    return operators.convert(operators.binary("shr", address, 4), dtypes.u64, "an address in shared memory")


def wgmma_async(
    config: WgmmaConfig,
    a_expr: Any,
    c_addr: Any,
    b_desc: Any,
    scale_d: int = 1,
    scale_a: int = 1,
    scale_b: int = 1,
    trans_a: int | None = None,
    trans_b: int = 0,
) -> Any:
    """Start c += a b; `wgmma_fence` stands before, `wgmma_commit_group` and `wgmma_wait_group` after.

    a_expr: a descriptor (u64), or the registers that a thread holds of A. c_addr: those of D. scale_d: 0 for c = a b.
    trans_a, trans_b: 1 where k is the slower axis of an operand of 2-byte elements in shared memory. scale_a, scale_b
    are 1: negate operands where they are made. ScriptError for others.
    """
    operand = unwrapped(a_expr)
    from_registers = not (isinstance(operand, Expr) and operand.type == dtypes.u64)
    has_order = config.shape.a.nbytes == 2
    if (scale_a, scale_b) != (1, 1) or scale_d not in (0, 1):
        raise ScriptError(
            f"wgmma_async got scale_d={scale_d}, scale_a={scale_a}, scale_b={scale_b}", hint="0 or 1; 1; 1"
        )
    if (trans_a and (from_registers or not has_order)) or (trans_b and not has_order):
        raise ScriptError(
            f"wgmma_async got trans_a={trans_a}, trans_b={trans_b}",
            hint="only 2-byte elements in shared memory may have k as the slower axis",
        )
    family = "wgmma_registers" if from_registers else "wgmma"
    product: IntrinsicFunction = find_row(matrix_name(family, config.shape))
    orders = [int(trans_b)] if from_registers else [int(trans_a or 0), int(trans_b)]
    return product(c_addr, a_expr, b_desc, bool(scale_d), *(orders if has_order else []))
