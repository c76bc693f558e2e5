"""Nodes that run in torch: operators that core lacks, custom operators, and cases that a handler refuses.

They are counted, named in the report and warned about once a compilation; `options={"strict": True}` refuses them.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from hidet import dtypes
from hidet.dims import Dim, DimExpr, Symbol, compile_evaluator, symbols
from hidet.errors import UnsupportedOp
from hidet.graph import Attribute, OperatorSpec, TensorType, Value
from hidet.torch import compat
from hidet.torch.effects import EFFECT
from hidet.torch.emitter import Scalar
from torch import fx


@dataclass(frozen=True, slots=True)
class _Operand:
    """Stands in an argument list for tensor number `number`; `is_number`: pass its element.

    on_host: pass a copy on the CPU. memory_format: how torch has the tensor at this place, which operators of torch may
    rely on; None for neither row-major nor channels-last.
    """

    number: int
    is_number: bool = False
    on_host: bool = False
    memory_format: torch.memory_format | None = None


@dataclass(frozen=True, slots=True)
class _Size:
    """Stands in an argument list for a symbolic size."""

    dim: DimExpr


def eager_spec(
    node: fx.Node,
    name: str,
    types: Sequence[TensorType | None],
    values: Mapping[fx.Node, Any],
    size_value: Callable[[Symbol], Value | None],
    defines: Sequence[Dim] = (),
    strides: Sequence[tuple[int, int]] = (),
) -> tuple[OperatorSpec, list[Value]]:
    """An operator that calls what the fx node calls, and its inputs in order.

    Tensor arguments are inputs of the operator; everything else is in its `call`. Symbolic sizes among the arguments
    are computed from their symbols; size_value gives the values of these, which are inputs too. types: of the results;
    None for one that is no tensor, or that nobody reads. defines: symbols of the result types that the results tell.
    strides: pairs of a result and an axis whose strides are a further result, a vector.
    """
    kept = [number for number, type_ in enumerate(types) if type_ is not None]
    template = _Template(values)
    args = _read_on_host(name, template.fill(list(node.args)))
    kwargs = {key: template.fill(value) for key, value in node.kwargs.items()}
    found = {symbol.name: symbol for dim in template.sizes for symbol in symbols(dim)}
    names = sorted(found)
    inputs = list(template.operands)
    for symbol in names:
        value = size_value(found[symbol])
        if value is None:
            raise UnsupportedOp(f"{name} runs in torch and needs the size {symbol}, which is no input of the graph")
        inputs.append(value)
    target: Callable[..., Any] = node.target  # type: ignore[assignment]  # a call_function's target is a function
    call = _EagerCall(target, args, kwargs, len(template.operands), template.sizes, names, kept, strides)
    # A function without results, which checks something, gets a token: nodes have at least one output.
    result_types = tuple(type_ for type_ in types if type_ is not None) or (TensorType(dtypes.boolean, ()),)
    if strides:
        result_types += (TensorType(dtypes.i64, (len(strides),)),)
    spec = OperatorSpec(
        name=f"torch:{name}",
        inputs=("inputs*",),
        attributes=(Attribute("arguments", f"{args} {kwargs}"), Attribute("defines", tuple(defines))),
        kind="eager",
        infer=lambda given, attrs: result_types,
        call=call,
        is_random=torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()),
        has_effect=bool(node.is_impure()) or EFFECT in node.meta,
        doc=f"{name}, run by torch.",
    )
    return spec, inputs


class _Template:
    """Replaces graph values in nested arguments by stand-ins and collects them."""

    def __init__(self, values: Mapping[fx.Node, Any]) -> None:
        self.values = values
        self.operands: list[Value] = []
        self.sizes: list[DimExpr] = []

    def fill(self, argument: Any) -> Any:
        if isinstance(argument, fx.Node):
            return self._value(self.values[argument], _memory_format(argument.meta.get("val")))
        if isinstance(argument, tuple):
            return tuple(self.fill(item) for item in argument)
        if isinstance(argument, list):
            return [self.fill(item) for item in argument]
        if isinstance(argument, dict):
            return {key: self.fill(item) for key, item in argument.items()}
        return argument

    def _value(self, value: Any, memory_format: torch.memory_format | None = None) -> Any:
        if isinstance(value, Scalar):
            return _Operand(self._operand(value.value), is_number=True)
        if isinstance(value, Value):
            return _Operand(self._operand(value), memory_format=memory_format)
        if isinstance(value, DimExpr):
            self.sizes.append(value)
            return _Size(value)
        if isinstance(value, list | tuple):
            return [self._value(item) for item in value]
        return value

    def _operand(self, value: Value) -> int:
        if value not in self.operands:
            self.operands.append(value)
        return self.operands.index(value)


def _read_on_host(name: str, args: list[Any]) -> list[Any]:
    """The arguments of an operator, with those on the CPU that torch's kernel for a device reads on the host."""
    places, unless_zero = compat.READ_ON_HOST.get(name, ((), 0))
    if not places or args[unless_zero] == 0:
        return args
    return [replace(arg, on_host=True) if number in places else arg for number, arg in enumerate(args)]


def _memory_format(fake: object) -> torch.memory_format | None:
    """The layout of a tensor while torch traced the graph. A copy that gives it to the tensor may be gone from ours."""
    if not isinstance(fake, torch.Tensor):
        return None
    formats = [torch.contiguous_format]
    formats += {4: [torch.channels_last], 5: [torch.channels_last_3d]}.get(fake.dim(), [])
    return next((each for each in formats if fake.is_contiguous(memory_format=each)), None)


class _EagerCall:
    """Calls a torch function with tensors and sizes put back into its arguments; returns the results that are kept."""

    def __init__(
        self,
        target: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        tensors: int,
        sizes: Sequence[DimExpr],
        names: Sequence[str],
        kept: Sequence[int],
        strides: Sequence[tuple[int, int]],
    ) -> None:
        self._target = target
        self._args = args
        self._kwargs = kwargs
        self._tensors = tensors
        self._sizes = list(sizes)
        self._kept = kept
        self._strides = strides
        self._evaluate = compile_evaluator(self._sizes, names) if sizes else None

    def __call__(self, *operands: Any) -> tuple[Any, ...]:
        # A size that nobody has read is in a tensor.
        sizes = self._evaluate(list(map(int, operands[self._tensors :]))) if self._evaluate is not None else ()
        known = dict(zip(map(str, self._sizes), sizes, strict=True))

        def put_back(argument: Any) -> Any:
            if isinstance(argument, _Operand):
                tensor = operands[argument.number]
                if argument.is_number:
                    return tensor.item()
                if argument.on_host:
                    return tensor.cpu()
                layout = argument.memory_format
                return tensor if layout is None else tensor.contiguous(memory_format=layout)
            if isinstance(argument, _Size):
                return known[str(argument.dim)]
            if isinstance(argument, list | tuple):
                return type(argument)(map(put_back, argument))
            if isinstance(argument, dict):
                return {key: put_back(item) for key, item in argument.items()}
            return argument

        with torch.no_grad():
            result = self._target(*map(put_back, self._args), **{k: put_back(v) for k, v in self._kwargs.items()})
        results = result if isinstance(result, tuple | list) else (result,)
        device = operands[0].device if operands else torch.device("cpu")
        kept = [results[number] for number in self._kept]
        tensors = [each if isinstance(each, torch.Tensor) else torch.tensor(each, device=device) for each in kept]
        returned = tuple(tensors) or (torch.tensor(True, device="cpu"),)
        if self._strides:
            strides = [results[number].stride(axis) for number, axis in self._strides]
            returned += (torch.tensor(strides, device=results[self._strides[0][0]].device),)
        return returned


def handler_failure(error: Exception) -> str:
    """Why a node runs in torch whose handler failed in a way that no handler should."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"a bug of hidet, please report it: {type(error).__name__}: {error}{place}"
