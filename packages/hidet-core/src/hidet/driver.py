"""Names that scripts call: `hidet.driver.build_ir_module`."""

from hidet.compiler.graphs import compile, compile_graph
from hidet.compiler.modules import build_ir_module

__all__ = ["build_ir_module", "compile", "compile_graph"]
