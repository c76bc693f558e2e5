"""Names that scripts call: `hidet.drivers.build_ir_module`."""

from importlib import import_module

from hidet.compiler.modules import build_ir_module

__all__ = ["build_ir_module"]


def __getattr__(name: str) -> object:
    # What plug-ins add.
    return import_module("hidet.plugins.attributes").find("hidet.drivers", name)
