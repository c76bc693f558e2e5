"""hidet: a deep-learning compiler as a plug-in framework.

Only this wheel owns `hidet/__init__.py`; satellites (`hidet.cpu`, `hidet.torch`, ...) join the package through
`extend_path`. Every public name is imported at first use, so `import hidet` loads no numpy, torch, llvmlite or pluggy.
"""

from importlib import import_module as _import_module
from pkgutil import extend_path
from typing import TYPE_CHECKING

__path__ = extend_path(__path__, __name__)

if TYPE_CHECKING:
    from hidet import driver, drivers, lang, ops, option, plugins, testing, utils
    from hidet.api.flow import FlowGraph, trace_from
    from hidet.api.tensors.create import (
        arange,
        asarray,
        empty,
        empty_like,
        from_dlpack,
        from_torch,
        full,
        full_like,
        linspace,
        ones,
        ones_like,
        randint,
        randn,
        randn_like,
        symbol,
        symbol_like,
        zeros,
        zeros_like,
    )
    from hidet.api.tensors.tensor import Tensor
    from hidet.compiler.graphs import compile
    from hidet.context import CompileContext, Options
    from hidet.dims import symbol as symbol_var
    from hidet.errors import HidetError
    from hidet.graph import Graph
    from hidet.lang.module import script, script_module
    from hidet.runtime.artifact import load, save_signatures
    from hidet.tuning import tune

    __version__: str
else:
    # public name -> "module" or "module:attribute"
    _LAZY = {
        "CompileContext": "hidet.context:CompileContext",
        "FlowGraph": "hidet.api.flow:FlowGraph",
        "Graph": "hidet.graph:Graph",
        "HidetError": "hidet.errors:HidetError",
        "Options": "hidet.context:Options",
        "Tensor": "hidet.api.tensors.tensor:Tensor",
        "compile": "hidet.compiler.graphs:compile",
        "load": "hidet.runtime.artifact:load",
        "save_signatures": "hidet.runtime.artifact:save_signatures",
        "driver": "hidet.driver",
        "graph": "hidet.graph",
        "drivers": "hidet.drivers",
        "lang": "hidet.lang",
        "ops": "hidet.ops",
        "option": "hidet.option",
        "plugins": "hidet.plugins",
        "script": "hidet.lang.module:script",
        "script_module": "hidet.lang.module:script_module",
        "symbol_var": "hidet.dims:symbol",
        "testing": "hidet.testing",
        "trace_from": "hidet.api.flow:trace_from",
        "tune": "hidet.tuning:tune",
        "utils": "hidet.utils",
    }
    _TENSORS = (
        *("arange", "asarray", "empty", "empty_like", "from_dlpack", "from_torch", "full", "full_like"),
        *("linspace", "ones", "ones_like", "randint", "randn", "randn_like", "symbol", "symbol_like"),
        *("zeros", "zeros_like"),
    )
    _LAZY |= {name: f"hidet.api.tensors.create:{name}" for name in _TENSORS}
    # Element types by the names that torch and numpy have.
    _TYPES = (
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"),
        *("bfloat16", "tfloat32", "boolean", "complex64", "complex128", "float8_e4m3", "float8_e5m2"),
    )
    _LAZY |= {name: f"hidet.lang:{name}" for name in _TYPES}

    def __getattr__(name):
        if name == "__version__":
            from importlib.metadata import version

            return version("hidet-core")
        if name not in _LAZY:
            if name.startswith("_"):
                raise AttributeError(f"module 'hidet' has no attribute {name!r}")
            try:
                # What a wheel puts into the package, whoever wrote it.
                return _import_module(f"hidet.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"hidet.{name}":
                    raise
            from hidet.errors import nearest_names
            from hidet.plugins.attributes import find, names_of
            from hidet.plugins.wheels import wheels_of_modules

            wheels = wheels_of_modules()
            if name in wheels:
                raise AttributeError(f"hidet.{name} is not installed: pip install {wheels[name]}")
            if name in names_of("hidet"):
                return find("hidet", name)
            near = nearest_names(name, [*_LAZY, *wheels], limit=1)
            advice = f"; did you mean {near[0]!r}?" if near else ""
            raise AttributeError(f"module 'hidet' has no attribute {name!r}{advice}")
        module, _, attribute = _LAZY[name].partition(":")
        try:
            value = _import_module(module)
        except ModuleNotFoundError as error:
            from hidet.errors import PluginError
            from hidet.plugins.wheels import wheels_of_modules

            part = module.split(".")[1]
            wheel = wheels_of_modules().get(part)
            if wheel is None or error.name != f"hidet.{part}":
                raise
            # No AttributeError: `from hidet import script` would hide what it says.
            raise PluginError(f"hidet.{name} is of the wheel {wheel}", hint=f"pip install {wheel}") from error
        return getattr(value, attribute) if attribute else value

    def __dir__():
        return [*globals(), *_LAZY]


__all__ = [
    "CompileContext",
    "FlowGraph",
    "Graph",
    "HidetError",
    "Options",
    "Tensor",
    "arange",
    "asarray",
    "compile",
    "driver",
    "drivers",
    "empty",
    "empty_like",
    "from_dlpack",
    "from_torch",
    "full",
    "full_like",
    "lang",
    "linspace",
    "load",
    "ones",
    "ones_like",
    "ops",
    "option",
    "plugins",
    "randint",
    "randn",
    "randn_like",
    "save_signatures",
    "script",
    "script_module",
    "symbol",
    "symbol_like",
    "symbol_var",
    "testing",
    "trace_from",
    "tune",
    "utils",
    "zeros",
    "zeros_like",
]
