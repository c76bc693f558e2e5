"""Scripts built for a target that is named: what it cannot do, and code for machines that are not here."""

from __future__ import annotations

import platform

import pytest

import hidet
from hidet.errors import CodegenError, CompileError
from hidet.lang import attrs, f32
from hidet.lang.cuda import shfl_down_sync, syncthreads, threadIdx


def test_operations_of_a_gpu_are_refused_on_the_cpu_with_their_place():
    with hidet.script_module() as script_module:

        @hidet.script
        def wait(x: f32[4]):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 4
            syncthreads()

    with pytest.raises(CodegenError, match=r"gpu\.syncthreads is an intrinsic of gpu") as caught:
        script_module.build(target="cpu")
    assert caught.value.loc.name == "wait"


def test_what_a_cpu_lacks_is_named_and_not_the_indices_that_it_could_do():
    @hidet.script
    def move(x: f32[32]):
        attrs.cuda.grid_dim = 1
        attrs.cuda.block_dim = 32
        x[threadIdx.x] = shfl_down_sync(0xFFFFFFFF, x[threadIdx.x], 1)

    with pytest.raises(CodegenError, match=r"gpu\.shuffle_down is an intrinsic of gpu") as caught:
        move.build("cpu")
    assert "shfl_down_sync(0xFFFFFFFF" in str(caught.value)


def test_a_script_alone_is_built_once_for_each_target():
    @hidet.script
    def twice(x: f32) -> f32:
        return x + x

    module = twice.build()
    assert module is twice.build() and module is not twice.build("cpu")
    assert "twice" in module.source()
    assert twice.build("cpu")(2.0) == twice(2.0) == 4.0


def test_code_for_another_machine_is_read_and_refused_when_it_is_called():
    @hidet.script
    def twice(x: f32) -> f32:
        return x + x

    other = "apple-m1" if "x86" in platform.machine() else "haswell"
    module = twice.build(f"cpu:{other}")
    assert "twice" in module.source()
    with pytest.raises(CompileError, match="it is code for"):
        module(2.0)
