"""LLVM IR text to object code: here, for other CPUs, and what is said about text that LLVM refuses."""

from __future__ import annotations

import pytest

from hidet.cpu.arch import arch_from_text, host_arch
from hidet.cpu.toolchain import compile_assembly, compile_object, kernel_name, toolchain_version
from hidet.errors import CodegenError, CompileError

SCALE = """\
define void @scale(ptr noalias %out, ptr noalias %x, float %factor, i64 %count) nounwind {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %from = getelementptr float, ptr %x, i64 %i
  %to = getelementptr float, ptr %out, i64 %i
  %value = load float, ptr %from
  %scaled = fmul float %value, %factor
  store float %scaled, ptr %to
  %next = add nuw nsw i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


def test_an_object_file_comes_out() -> None:
    data = compile_object(SCALE, host_arch(), 2)
    assert data[:4] in (b"\x7fELF", b"\xcf\xfa\xed\xfe")
    assert compile_object(SCALE, host_arch(), 2) == data


@pytest.mark.parametrize(
    ("cpu", "register"),
    [("x86-64", "%xmm"), ("haswell", "%ymm"), ("skylake-avx512", "%zmm"), ("znver5", "%zmm"), ("neoverse-n1", ".4s")],
)
def test_plain_loops_use_the_widest_vectors_of_the_cpu(cpu: str, register: str) -> None:
    assert register in compile_assembly(SCALE, arch_from_text(cpu), 2)


def test_level_0_does_not_vectorise() -> None:
    assert "mulps" not in compile_assembly(SCALE, arch_from_text("haswell"), 0)


def test_multiplication_and_addition_are_not_contracted_unasked() -> None:
    text = """
define float @f(float %a, float %b, float %c) {
  %p = fmul float %a, %b
  %s = fadd float %p, %c
  ret float %s
}"""
    assert "vfmadd" not in compile_assembly(text, arch_from_text("haswell"), 3)
    assert "vfmadd" in compile_assembly(
        text.replace("fmul", "fmul contract").replace("fadd", "fadd contract"), arch_from_text("haswell"), 3
    )


def test_a_syntax_error_shows_its_line() -> None:
    text = "define float @broken(float %x) {\n  %y = fmul float %x, %z\n  ret float %y\n}"
    with pytest.raises(CompileError) as caught:
        compile_object(text, host_arch(), 2)
    message = str(caught.value)
    assert "'broken', line 2: use of undefined value '%z'" in message
    assert "  %y = fmul float %x, %z\n" in message
    assert message.splitlines()[2].index("^") == message.splitlines()[1].index("%z")


def test_a_syntax_error_on_the_first_line_is_numbered_1() -> None:
    with pytest.raises(CompileError, match=r"line 1: .*\n  define flot @f"):
        compile_object("define flot @f() {\n ret float 0.0\n}", host_arch(), 2)


def test_what_the_verifier_refuses_names_the_kernel_and_the_instruction() -> None:
    text = """
define void @late(ptr %p) {
entry:
  br i1 true, label %a, label %b
a:
  %x = load i32, ptr %p
  br label %b
b:
  store i32 %x, ptr %p
  ret void
}"""
    with pytest.raises(CompileError, match=r"'late'.*does not dominate[^$]*store i32 %x"):
        compile_object(text, host_arch(), 2)


def test_an_unknown_optimisation_level_is_refused() -> None:
    with pytest.raises(CodegenError, match="level 4 does not exist"):
        compile_object(SCALE, host_arch(), 4)


def test_the_kernel_name_is_that_of_the_first_definition() -> None:
    assert kernel_name(SCALE) == "scale"
    assert kernel_name('declare void @g()\ndefine internal i32 @"a.b"(i32 %x) {') == "a.b"
    assert kernel_name("; nothing") == "<empty module>"


def test_the_version_names_llvm() -> None:
    assert "LLVM" in toolchain_version()
