"""Names that scripts call: `hidet.drivers.build_ir_module`."""

from hidet.compiler.modules import build_ir_module

__all__ = ["build_ir_module"]
