"""Hidet Script kernels as operators of torch: `register_op`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from hidet.compiler.modules import build_ir_module, target_of
from hidet.errors import HidetError, LaunchError, ShapeError, suggestion
from hidet.ir.func import Module
from hidet.ir.written import written_parameters
from hidet.lang import ScriptFunction, ScriptModule
from hidet.lang.module import module_of
from hidet.plugins.host import load_registry
from hidet.runtime.module import CompiledFunction, CompiledModule
from hidet.runtime.parameters import CallSignature, Parameter, signature_of
from hidet.torch import compat
from hidet.torch.in_place import Change
from hidet.torch.script_nodes import SCRIPT
from hidet.torch.tensors import torch_dtype
from torch.autograd.graph import increment_version

Kernel = ScriptFunction | ScriptModule | CompiledModule | CompiledFunction
ShapeRule = Callable[..., Sequence[int]]


def register_op(
    name: str,
    kernel: Kernel | Mapping[str, Kernel],
    *,
    outputs: Sequence[str] | Mapping[str, ShapeRule | None] = (),
    backward: Callable[..., Any] | None = None,
    setup_context: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """Make a script kernel the operator `torch.ops.<namespace>.<name>`, which eager mode and every compiler can call.

    add = hidet.torch.register_op("mylib::add", add_kernel, outputs=["c"])
    c = add(a, b)

    name: "namespace::name"; registering it again replaces the operator. kernel: a script, a script module or what it
    was compiled to; or several by the device they are for, {"cpu": ..., "cuda": ...}, with equal parameters. Scripts
    are compiled at the first call on each device.

    outputs: names of the tensor parameters that the operator makes and returns, in order; callers do not pass them. The
    extents of one are found from the other arguments; where its type says none (`~f32`), a mapping gives a function of
    the operator's arguments that returns its shape. Other parameters that the kernel writes are changed in place.

    backward, setup_context: as in `torch.library.register_autograd`, for operators that change no argument. Without
    them a backward pass through the operator gives no gradient, and torch warns of it. A backward pass through an
    operator that changes an argument raises LaunchError, as changing a leaf that requires a gradient does.

    Tensors that are not contiguous are copied before the call, and copied back where they are changed. Returns the
    operator (a torch.ops overload, which `torch.library.opcheck` takes). Raises LaunchError for a name without
    namespace, for an output that the kernel does not write, and for kernels without tensors to choose a device by;
    ShapeError for an output whose shape follows from nothing, and when a function of yours returns none.
    """
    namespace, separator, short = name.partition("::")
    if not (separator and namespace.isidentifier() and short.isidentifier()):
        raise LaunchError(f"operator {name!r} needs a name like 'mylib::add'")
    given = kernel if isinstance(kernel, Mapping) else {None: kernel}
    kernels = [Source.of(item) for item in given.values()]
    for device, source in zip(given, kernels, strict=True):
        if device not in (None, source.device_type):
            raise LaunchError(f"operator {name}: the kernel for {device!r} runs on {source.device_type!r}")
    if not kernels:
        raise LaunchError(
            f"operator {name} is given no kernel", hint='pass a script, or several: {"cpu": ..., "cuda": ...}'
        )
    if isinstance(outputs, str):
        raise LaunchError(f"outputs of operator {name} are {outputs!r}, expected a list", hint=f"outputs=[{outputs!r}]")
    rules = outputs if isinstance(outputs, Mapping) else dict.fromkeys(outputs)
    interface = Interface.of(name, kernels[0].signature, rules)
    if backward is not None and interface.written:
        raise LaunchError(f"operator {name} changes an argument in place, so it takes no backward")
    for source in kernels[1:]:
        if _shown(source.signature) != _shown(kernels[0].signature):
            raise LaunchError(f"operator {name}: its kernels have different parameters")
    library = compat.operator_library(namespace, short)
    library.define(f"{short}{interface.schema}", tags=(torch.Tag.pt2_compliant_tag,))
    for source in kernels:
        library.impl(short, _Implementation(interface, source), source.device_type.upper())
    torch.library.register_fake(name, interface.empty_outputs, lib=library)
    if backward is not None:
        torch.library.register_autograd(name, backward, setup_context=setup_context, lib=library)
    operator: Any = getattr(getattr(torch.ops, namespace), short).default
    if interface.written:
        names = tuple(parameter.name for parameter in interface.inputs)
        change = Change(operator, name, names, interface.written, len(interface.outputs))
        library.impl(short, change.recorded, "Autograd", with_keyset=True)
    # Where the importer of graphs finds it.
    setattr(operator, SCRIPT, ScriptOperator(interface, {source.device_type: source for source in kernels}))
    return operator  # type: ignore[no-any-return]  # torch's overloads are callable


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A kernel: what it takes, the type of device it runs on, and how it is compiled for one of them.

    module: None for a kernel that was compiled before.
    """

    signature: CallSignature
    device_type: str
    compile: Callable[[str], CompiledFunction]
    module: Module | None = None

    @classmethod
    def of(cls, kernel: Kernel) -> Source:
        if isinstance(kernel, CompiledModule):
            kernel = kernel[kernel.ir_module.entry]
        if isinstance(kernel, CompiledFunction):
            compiled = kernel
            return cls(compiled.signature, compiled.device.partition(":")[0], lambda device: compiled)
        if not isinstance(kernel, ScriptFunction | ScriptModule):
            raise LaunchError(
                f"a {type(kernel).__name__} is no kernel", hint="pass a function under @hidet.script, or what it builds"
            )
        module = kernel.ir_module() if isinstance(kernel, ScriptModule) else module_of([kernel])
        target = target_of(module)
        devices = load_registry().target(target).devices
        if not devices:
            raise LaunchError(
                f"the kernel {module.entry} is for target {target}, which takes tensors of no device",
                hint="its TargetSpec says so: devices=()",
            )
        return cls(_entry_signature(module), devices[0], lambda device: _compiled(module, target, device), module)


def _entry_signature(module: Module) -> CallSignature:
    entry = module.function(module.entry)
    return signature_of(entry, written_parameters(module)[entry.name])


def _compiled(module: Module, target: str, device: str) -> CompiledFunction:
    _, separator, index = device.partition(":")
    return build_ir_module(module, target=f"{target}{separator}{index}")[module.entry]


@dataclass(frozen=True, slots=True, eq=False)
class Interface:
    """An operator as its callers see it.

    inputs: the parameters that are passed. outputs: those that are made. order: for each parameter of the kernel,
    whether it is passed and its number among those.
    """

    name: str
    signature: CallSignature
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    rules: tuple[ShapeRule | None, ...]
    order: tuple[tuple[bool, int], ...]
    leader: int

    @classmethod
    def of(cls, name: str, signature: CallSignature, rules: Mapping[str, ShapeRule | None]) -> Interface:
        known = {parameter.name: parameter for parameter in signature.given}
        for output in rules:
            if output not in known:
                raise LaunchError(
                    f"operator {name}: {signature.function} has no parameter {output!r}", hint=suggestion(output, known)
                )
            if not (known[output].is_memory and known[output].is_written):
                raise LaunchError(f"operator {name}: {signature.function} does not write its parameter {output}")
        if signature.result is not None:
            raise LaunchError(
                f"operator {name}: {signature.function} returns a number, operators return tensors",
                hint="write the number into a tensor",
            )
        inputs = tuple(parameter for parameter in signature.given if parameter.name not in rules)
        made = list(rules)
        passed = [parameter.name for parameter in inputs]
        order = tuple((p in inputs, (passed if p in inputs else made).index(p.name)) for p in signature.given)
        leader = next((number for number, parameter in enumerate(inputs) if parameter.is_memory), None)
        if leader is None:
            raise LaunchError(
                f"operator {name} is passed no tensor, so nothing says on which device it runs",
                hint="pass one, for example as the tensor to write to",
            )
        outputs = tuple(known[output] for output in made)
        interface = cls(name, signature, inputs, outputs, tuple(rules.values()), order, leader)
        interface._require_shapes()
        return interface

    def _require_shapes(self) -> None:
        """ShapeError for an output whose extents no argument tells."""
        example = {p.name: (1,) * len(p.extents or ()) if p.is_memory else 1 for p in self.inputs}
        for parameter, rule in zip(self.outputs, self.rules, strict=True):
            if rule is None:
                try:
                    self.signature.shape_of(parameter.name, example)
                except ShapeError as error:
                    raise ShapeError(
                        f"operator {self.name}: the shape of output {parameter.name} does not follow from the "
                        f"arguments: {error.message}",
                        hint=f"outputs={{{parameter.name!r}: a function of the arguments that returns the shape}}",
                    ) from None
            else:
                self._require_rule(parameter.name, rule)

    def _require_rule(self, output: str, rule: object) -> None:
        """LaunchError unless `rule` is a function of the operator's arguments."""
        what = f"operator {self.name}: the shape of output {output} is"
        names = [parameter.name for parameter in self.inputs]
        if not callable(rule):
            raise LaunchError(f"{what} {rule!r}, expected a function of the arguments ({', '.join(names)})")
        try:
            inspect.signature(rule).bind(*names)
        except TypeError as error:
            raise LaunchError(
                f"{what} a function that does not take the arguments ({', '.join(names)}): {error}",
                hint=f"outputs={{{output!r}: lambda {', '.join(names)}: ...}}",
            ) from None
        except ValueError:
            pass  # functions of C do not say what they take

    @property
    def written(self) -> tuple[int, ...]:
        """Numbers of the inputs that the kernel writes."""
        return tuple(number for number, p in enumerate(self.inputs) if p.is_memory and p.is_written)

    @property
    def schema(self) -> str:
        """Parameters and results as torch writes them."""
        parts: list[str] = []
        for parameter in self.inputs:
            if parameter.is_memory:
                letter = chr(ord("a") + len(parts)) if len(parts) < 26 else f"a{len(parts)}"
                kind = f"Tensor({letter}!)" if parameter.is_written else "Tensor"
            else:
                kind = "bool" if parameter.dtype.is_bool else "SymInt" if parameter.dtype.is_int else "float"
            parts.append(f"{kind} {parameter.name}")
        results = ", ".join(["Tensor"] * len(self.outputs))
        return f"({', '.join(parts)}) -> {results if len(self.outputs) == 1 else f'({results})'}"

    def shapes(self, arguments: Sequence[Any]) -> list[Sequence[Any]]:
        """Shapes of the outputs; sizes may be symbolic."""
        pairs = zip(self.inputs, arguments, strict=True)
        known = {p.name: value.shape if p.is_memory else value for p, value in pairs}
        return [
            self.signature.shape_of(parameter.name, known)
            if rule is None
            else self._required_shape(parameter.name, rule(*arguments))
            for parameter, rule in zip(self.outputs, self.rules, strict=True)
        ]

    def _required_shape(self, output: str, shape: object) -> Sequence[Any]:
        """What a function gave for an output. ShapeError unless it is a shape."""
        if isinstance(shape, Sequence) and all(_is_extent(extent) for extent in shape):
            return shape
        raise ShapeError(
            f"the function for output {output} of operator {self.name} returned {shape!r}, expected a shape",
            hint="return a tuple of integers, none below 0: lambda x, ...: x.shape",
        )

    def make_outputs(self, arguments: Sequence[Any], shapes: Sequence[Sequence[Any]]) -> list[torch.Tensor]:
        """Uninitialised outputs on the device of the first tensor."""
        device = arguments[self.leader].device
        pairs = zip(self.outputs, shapes, strict=True)
        return [torch.empty(tuple(shape), dtype=torch_dtype(p.dtype.name), device=device) for p, shape in pairs]

    def returned(self, outputs: Sequence[torch.Tensor]) -> Any:
        """What the operator returns."""
        return None if not outputs else outputs[0] if len(outputs) == 1 else tuple(outputs)

    def empty_outputs(self, *arguments: Any) -> Any:
        """The operator on tensors without data."""
        return self.returned(self.make_outputs(arguments, self.shapes(arguments)))


@dataclass(frozen=True, slots=True, eq=False)
class ScriptOperator:
    """What is known of a registered operator: how it is called, and its kernels by type of device."""

    interface: Interface
    sources: Mapping[str, Source]


class _Implementation:
    """The operator on one type of device; torch calls it below autograd."""

    def __init__(self, interface: Interface, source: Source) -> None:
        self._interface = interface
        self._source = source
        self._places = tuple(number for number, p in enumerate(interface.inputs) if p.is_memory)
        self._written = interface.written
        self._compiled: dict[torch.device, CompiledFunction] = {}
        self._latest: tuple[list[Any], list[Sequence[int]]] | None = None

    def __call__(self, *arguments: Any) -> Any:
        interface = self._interface
        given = list(arguments)
        for place in self._places:
            given[place] = _plain(given[place])
        device = given[interface.leader].device
        function = self._compiled.get(device)
        if function is None:
            function = self._compiled[device] = self._source.compile(str(device))
        outputs = interface.make_outputs(given, self._shapes(given))
        if self._written:
            increment_version([arguments[place] for place in self._written])
        try:
            function(*[given[number] if is_passed else outputs[number] for is_passed, number in interface.order])
        except HidetError as error:
            error.message = f"operator {interface.name}: {error.message}"
            raise
        for place in self._written:
            if given[place].data_ptr() != arguments[place].data_ptr():
                arguments[place].detach().copy_(given[place])
        return interface.returned(outputs)

    def _shapes(self, arguments: Sequence[Any]) -> list[Sequence[int]]:
        """Shapes of the outputs, which are mostly those of the call before."""
        sizes = [value.shape if isinstance(value, torch.Tensor) else value for value in arguments]
        latest = self._latest
        if latest is None or latest[0] != sizes:
            latest = self._latest = sizes, self._interface.shapes(arguments)
        return latest[1]


def _is_extent(value: object) -> bool:
    """Whether a value is a size of a tensor; what is not known yet is taken for one."""
    return isinstance(value, torch.SymInt) or (isinstance(value, Integral) and int(value) >= 0)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor outside of autograd: the kernel changes no gradient."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    return tensor if tensor.is_contiguous() else tensor.contiguous()


def _shown(signature: CallSignature) -> list[str]:
    """Names and types of what a kernel takes, to be compared."""
    return [f"{p.name}: {p.type} {p.is_written}" for p in signature.given]
