"""An intrinsic of a third party: called in scripts, simulated, written by each target, and read back from text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hidet
from hidet.cuda.codegen.module import emit_module
from hidet.dtypes import u32
from hidet.errors import CodegenError, PluginError, UnsupportedOp
from hidet.ir.interpret import run_module
from hidet.ir.intrinsic import Intrinsic, IntrinsicFamily, SameAs, Value, table
from hidet.ir.parser import parse_module
from hidet.ir.printer import print_module
from hidet.lang import attrs
from hidet.lang.cuda import blockIdx, threadIdx
from hidet.lang.module import module_of
from hidet.lang.types import u32 as u32_
from hidet.plugins.host import load_registry

HERE = __name__
ACME = IntrinsicFamily(
    name="acme",
    load=f"{HERE}:ROWS",
    meanings=f"{HERE}:MEANINGS",
    spellings={"cpu": f"{HERE}:LLVM", "cuda": f"{HERE}:CUDA"},
)
POPCOUNT = Intrinsic(
    name="acme.popcount",
    family=ACME,
    group="bits",
    doc="how many bits of x are set",
    parameters=(Value("x", (u32,)),),
    result=SameAs("x"),
)
BARE = IntrinsicFamily(name="bare", load=f"{HERE}:BARE_ROWS")
NAMED_ONLY = Intrinsic(
    name="bare.popcount", family=BARE, group="bits", doc="", parameters=POPCOUNT.parameters, result=u32
)
ROWS, BARE_ROWS = table(POPCOUNT), table(NAMED_ONLY)
MEANINGS = {"acme.popcount": lambda x: np.bitwise_count(x).astype(np.uint32)}

LLVM = {"acme.popcount": "llvm.ctpop.i32"}
CUDA = {"acme.popcount": "(unsigned)__popc({0})"}


@hidet.script
def count_bits(x: u32_[64], y: u32_[64]):
    attrs.func_kind = "cuda_kernel"
    attrs.cuda.grid_dim = 2
    attrs.cuda.block_dim = 32
    i = blockIdx.x * 32 + threadIdx.x
    y[i] = POPCOUNT(x[i])


@hidet.script
def count_bare_bits(x: u32_[64], y: u32_[64]):
    attrs.func_kind = "cuda_kernel"
    attrs.cuda.grid_dim = 2
    attrs.cuda.block_dim = 32
    y[threadIdx.x] = NAMED_ONLY(x[threadIdx.x])


def arguments() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return np.random.default_rng(0).integers(0, 2**32, 64, np.uint32), np.zeros(64, np.uint32)


def test_its_meaning_is_simulated() -> None:
    x, y = arguments()
    run_module(module_of([count_bits]), [x, y])
    assert np.array_equal(y, np.bitwise_count(x))


def test_it_is_written_for_a_cpu() -> None:
    x, y = arguments()
    count_bits.build("cpu")(x, y)
    assert np.array_equal(y, np.bitwise_count(x))


def test_it_is_written_for_a_gpu() -> None:
    assert "(unsigned)__popc(" in emit_module(module_of([count_bits]), 80).text


def test_text_is_read_back_with_its_table_only() -> None:
    printed = print_module(module_of([count_bits]))
    rows = load_registry().intrinsic_rows()
    assert 'call("acme.popcount", ' in printed
    assert print_module(parse_module(printed, {**rows, **ROWS})) == printed


def test_what_a_wheel_does_not_say_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedOp, match=r"nothing says what the intrinsic bare\.popcount computes"):
        run_module(module_of([count_bare_bits]), [*arguments()])
    with pytest.raises(CodegenError, match=r"bare\.popcount is an intrinsic of bare, which a CPU does not have"):
        count_bare_bits.build("cpu")
    with pytest.raises(CodegenError, match=r"intrinsic bare\.popcount of bare has no CUDA spelling"):
        emit_module(module_of([count_bare_bits]), 80)


def test_a_table_that_cannot_be_loaded_names_its_family() -> None:
    family = IntrinsicFamily(name="lost", load="no_such_module:ROWS")
    with pytest.raises(PluginError, match="intrinsics 'lost': cannot load 'no_such_module:ROWS'"):
        family.resolve()
