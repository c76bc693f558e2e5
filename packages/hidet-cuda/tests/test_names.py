"""Names of scripts that C++ or CUDA have for something else."""

from __future__ import annotations

from dataclasses import replace

import hidet
from hidet.cuda.codegen import reserved
from hidet.cuda.codegen.module import emit_module
from hidet.cuda.nvrtc import compile_cubin
from hidet.ir.func import Module
from hidet.lang import attrs, f16, f32
from hidet.lang.cuda import threadIdx


def module_of_a_kernel(name: str) -> Module:
    with hidet.script_module() as module:

        @hidet.script
        def kernel(x: f32[32]):
            attrs.func_name = name
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 32
            x[threadIdx.x] = 1.0

    return module.ir_module()


def test_a_kernel_may_have_a_name_that_cuda_declares() -> None:
    functions = reserved.FUNCTIONS
    others = (
        "dim3",
        "size_t",
        "make_float4",
        "clock64",
        "malloc",
        "std",
        "va_list",
        "NULL",
        "cudaError_t",
        "__shared__",
    )
    taken = list(dict.fromkeys([*reserved.RESERVED.words, *functions, *(f"{name}f" for name in functions), *others]))
    kernel = module_of_a_kernel("k").function("k")
    module = Module(tuple(replace(kernel, name=name) for name in taken), taken[0])

    source = emit_module(module, 80)

    assert set(compile_cubin(source, "sm_80").usage) == {fact.symbol for fact in source.kernels}
    assert [fact.name for fact in source.kernels] == taken


def test_other_names_stay_what_they_are() -> None:
    for name in ("matmul", "float4", "cuda_gemm", "norm_rows", "make_mask", "memcpy", "strided_copy"):
        (fact,) = emit_module(module_of_a_kernel(name), 80).kernels
        assert fact.symbol == name


def test_two_functions_never_share_a_name() -> None:
    kernel = module_of_a_kernel("k").function("k")
    wanted = ("double", "script_double", "script_script_double", "new")
    source = emit_module(Module(tuple(replace(kernel, name=name) for name in wanted), "new"), 80)
    assert len(compile_cubin(source, "sm_80").usage) == 4


def test_names_may_have_every_letter_of_python() -> None:
    größe = hidet.dims.symbol("größe")
    with hidet.script_module() as module:

        @hidet.script
        def höhe(wert: f32) -> f32:
            return wert + 1.0

        @hidet.script
        def länge(ä: f32[größe], ö: f32[größe], __: f32):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 32
            for ÿ in range(threadIdx.x, größe, 32):
                Δ: f32 = höhe(ä[ÿ]) * __
                Δ += 1.0
                ö[ÿ] = Δ

    source = emit_module(module.ir_module(), 80)
    (fact,) = source.kernels
    assert fact.name == "länge" and fact.symbol.isascii()
    assert fact.symbol in compile_cubin(source, "sm_80").usage


def test_two_functions_never_share_a_name_of_plain_letters() -> None:
    kernel = module_of_a_kernel("k").function("k")
    wanted = ("ä", "ö", "_", "_ä", "script__", "script_script__", "double")
    source = emit_module(Module(tuple(replace(kernel, name=name) for name in wanted), "ä"), 80)
    assert len(compile_cubin(source, "sm_80").usage) == len(wanted)
    assert {fact.name: fact.symbol for fact in source.kernels}["script__"] == "script__"


def test_a_variable_may_have_the_name_of_a_macro() -> None:
    with hidet.script_module() as module:

        @hidet.script
        def kernel(x: f32[32], NULL: f32, __CUDA_ARCH__: f32, CUDA_VERSION: f32, INFINITY: f32, value_NULL: f32):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 32
            __LINE__: f32 = NULL + __CUDA_ARCH__ + CUDA_VERSION
            __LINE__ += INFINITY + value_NULL
            x[threadIdx.x] = __LINE__

    assert "kernel" in compile_cubin(emit_module(module.ir_module(), 80), "sm_80").usage


def test_a_variable_hides_no_function_that_its_kernel_calls() -> None:
    @hidet.script
    def larger(a: f32, b: f32) -> f32:
        return a if a > b else b

    pick = larger
    with hidet.script_module() as module:

        @hidet.script
        def kernel(x: f16[32], tanhf: f32):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 32
            larger: f32 = x[threadIdx.x]
            to_f32 = pick(larger, tanhf)
            to_f32 += 1.0
            x[threadIdx.x] = hidet.lang.tanh(to_f32 + larger)

    source = emit_module(module.ir_module(), 80)
    assert "larger(larger_2, tanhf_2)" in source.text
    assert "kernel" in compile_cubin(source, "sm_80").usage
