"""From thread IR to textual LLVM IR."""

from hidet.cpu.codegen.module import emit_module

__all__ = ["emit_module"]
