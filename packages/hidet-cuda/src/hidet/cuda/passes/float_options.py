"""What the assembler does about numbers near zero and about quotients, where the user asks for speed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from hidet.cuda.nvrtc import COMPILER_OPTIONS
from hidet.ir.func import Module

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True)
class FloatOptions:
    """Kernels say which options of CUDA's compiler `cuda.ftz` and `cuda.prec_div` ask for."""

    name: ClassVar[str] = "cuda-float-options"

    def run(self, module: Module, ctx: CompileContext) -> Module:
        """The same module where both are as they are."""
        asked = [
            *(["--ftz=true"] if ctx.option("cuda.ftz") else []),
            *([] if ctx.option("cuda.prec_div") else ["--prec-div=false"]),
        ]
        if not asked:
            return module
        said = (COMPILER_OPTIONS, tuple(asked))
        return replace(
            module,
            functions=tuple(
                replace(f, attributes=(*f.attributes, said)) if f.kind == "kernel" else f for f in module.functions
            ),
        )
