"""Scripts that are compiled together, and `hidet.script`, which puts a function into the module around it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from importlib import import_module
from types import TracebackType
from typing import Any

from hidet.errors import HidetError, ScriptError
from hidet.ir.expr import Expr, Var
from hidet.ir.func import EXPORTED, SIZES, Function, Module
from hidet.ir.stmt import Stmt
from hidet.ir.types import BufferType, Type
from hidet.ir.verify import verify_module
from hidet.ir.visit import substitute
from hidet.lang.function import ScriptFunction, launch_stmt, translate
from hidet.lang.global_variables import ModuleWithVariables, global_variable, users_of, with_parameters
from hidet.lang.values import TensorValue

LAUNCH = "launch"
"""The function that calling a module calls: the user's of that name, else one that is made for the only kernel."""

_CURRENT: ContextVar[tuple[ScriptModule, ...]] = ContextVar("hidet_script_modules", default=())


class ScriptModule:
    """Functions compiled together; made by `hidet.script_module()`.

    with hidet.script_module() as module:

        @hidet.script
        def add(a: f32, b: f32) -> f32:
            return a + b

    module.build()(1.0, 2.0)
    """

    def __init__(self) -> None:
        self.functions: list[ScriptFunction] = []
        self.variables: list[Var] = []

    def __enter__(self) -> ScriptModule:
        _CURRENT.set((*_CURRENT.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _CURRENT.set(_CURRENT.get()[:-1])

    def add(self, script: ScriptFunction) -> None:
        """Put a script into the module. ScriptError when it has one of that name."""
        if any(known.name == script.name for known in self.functions):
            raise ScriptError(f"the module has two functions called {script.name}", hint="set attrs.func_name")
        self.functions.append(script)

    def define_global_var(self, name: str, var_type: Any) -> TensorValue:
        """A tensor that functions of the module share, zero at first, which keeps its elements between calls; scripts
        use what this gives. var_type: `f32[16]`, or `i32` for one element. ScriptError for a name that is taken."""
        if any(known.name == name for known in self.variables):
            raise ScriptError(f"the module has two variables called {name}")
        made = global_variable(name, var_type)
        assert isinstance(made.base, Var)
        self.variables.append(made.base)
        return made

    def ir_module(self) -> Module:
        """The functions, and those they call, as thread IR, verified. ScriptError for a module without functions.

        Functions that use variables of the module take them as parameters, behind those of the script."""
        return module_of(self.functions, self.variables)

    def build(self, target: str = "auto", options: Mapping[str, Any] | None = None) -> Any:
        """Compile: a callable (`hidet.runtime.module.CompiledModule`). `target` "auto" takes "cuda" where a kernel is
        launched with blocks of threads, else "cpu"; "cuda:sm_90a" makes code for that architecture, which can be looked
        at on machines without a GPU. options: as of `hidet.driver.build_ir_module`; {"check_bounds": True} checks every
        index of an array."""
        # The compiler lies above the language.
        modules = import_module("hidet.compiler.modules")
        made = self.ir_module()
        chosen = modules.target_of(made) if target == "auto" else target
        compiled = modules.build_ir_module(made, target, options)
        users = users_of(made.functions, self.variables)
        return ModuleWithVariables(compiled, users, chosen.partition(":")[0]) if users else compiled


def script_module() -> ScriptModule:
    """A module to be filled in a `with` block."""
    return ScriptModule()


def script(function: Callable[..., Any]) -> ScriptFunction:
    """Translate a Python function, which is never executed, and put it into the module around, if there is one.

    Every parameter has a type: `f32`, `~f32`, `f32[m, n]`. Raises ScriptError with file, line and column.
    """
    try:
        translated = translate(function, sys._getframe(1))
    except ScriptError as error:
        # The error says where the script is wrong; how the translator got there is nothing to its author. What Python
        # code that the script calls has raised is.
        cause = None if isinstance(error.__cause__, HidetError) else error.__cause__
        raise error.with_traceback(None) from cause
    modules = _CURRENT.get()
    if modules:
        modules[-1].add(translated)
    return translated


@functools.lru_cache(maxsize=1024)
def build_alone(function: ScriptFunction, target: str) -> Any:
    """A compiled module of one function and what it calls; the same one at each call."""
    module = ScriptModule()
    module.add(function)
    return module.build(target)


def _with_callees(functions: Iterable[ScriptFunction]) -> list[ScriptFunction]:
    found: dict[ScriptFunction, None] = {}
    stack = list(functions)[::-1]
    while stack:
        current = stack[-1]
        missing = [callee for callee in current.callees if callee not in found]
        if missing:
            stack.extend(missing)
            continue
        found.setdefault(stack.pop())
    return list(found)


def module_of(functions: Iterable[ScriptFunction], variables: Sequence[Var] = ()) -> Module:
    """A module of scripts and what they call; see `ScriptModule.ir_module`. variables: of the module."""
    scripts = _with_callees(functions)
    if not scripts:
        raise ScriptError("the module has no functions", hint="define one under @hidet.script inside the with block")
    called = {callee for script in scripts for callee in script.callees}
    made = [helper for script in scripts for helper in script.helpers]
    made += [_function(script, script in called) for script in scripts]
    exported = [f.name for f in made if f.kind == "host" or EXPORTED in f.attributes]
    kernels = [script for script in scripts if script.launch is not None]
    if len(kernels) == 1 and not exported:
        # A kernel may be called launch itself.
        name = LAUNCH if LAUNCH not in (f.name for f in made) else f"{LAUNCH}_{kernels[0].name}"
        made.append(_launcher(kernels[0], name))
        exported = [name]
    if not exported and kernels:
        # Each is called by its name, so that the kernels themselves have others.
        renamed = {kernel.name: f"{kernel.name}_kernel" for kernel in kernels}
        made = [replace(f, name=renamed[f.name]) if f.kind == "kernel" else f for f in made]
        made += [_launcher(kernel, kernel.name, renamed[kernel.name]) for kernel in kernels]
        exported = list(renamed)
    if not exported:
        raise ScriptError(
            f"the module has nothing that a host can call: {', '.join(script.name for script in scripts)}",
            hint="write a function that launches the kernels, or set attrs.func_kind = 'public'",
        )
    if variables:
        made = with_parameters(made, users_of(made, variables))
    module = Module(tuple(made), LAUNCH if LAUNCH in exported else exported[0])
    verify_module(module)
    return module


def _function(script: ScriptFunction, is_called: bool) -> Function:
    """What a script is in its module: what nobody says the kind of is called by the host, unless a script calls it."""
    function = script.function
    is_public = script.is_public or (script.kind is None and not is_called)
    if not is_public:
        return script.unchecked
    _check_maps(script)
    if function.result is not None:
        return replace(function, kind="device", attributes=(*function.attributes, EXPORTED))
    return replace(function, kind="host")


def _launcher(script: ScriptFunction, name: str, kernel: str | None = None) -> Function:
    """A host function with the parameters of a kernel that launches it. kernel: its name in the module, None for that
    of the script."""
    _check_maps(script)
    assert script.launch is not None
    function = script.function
    fresh: dict[Var, Expr] = {}
    for var in (*(v for v in function.params if not isinstance(v.type, BufferType)), *function.params):
        if var not in fresh:
            fresh[var] = Var(var.name, _renamed(var.type, fresh))
    body: Stmt = launch_stmt(script if kernel is None else replace(script, name=kernel), fresh, script.launch.loc)
    kept = tuple(pair for pair in function.attributes if pair[0] == SIZES)
    params = tuple(fresh[var] for var in function.params)
    return Function(name, params, body, "host", attributes=kept)  # type: ignore[arg-type]  # variables


def _check_maps(script: ScriptFunction) -> None:
    """ScriptError for what Python would have to pass a tensor map."""
    kinds = [(var.name, var.type) for var in script.function.params]
    maps = [name for name, kind in kinds if isinstance(kind, BufferType) and kind.space == "constant"]
    if maps:
        raise ScriptError(
            f"{script.name} takes a tensor map, {maps[0]}, which only functions of the host make",
            hint="write a script that calls it with tensor_map(x, box=[...])",
        )


def _renamed(type_: Type, fresh: dict[Var, Expr]) -> Type:
    if not isinstance(type_, BufferType):
        return type_
    shape = tuple(substitute(extent, fresh) for extent in type_.shape)
    return BufferType(type_.dtype, shape, type_.strides, type_.space, type_.lanes)
