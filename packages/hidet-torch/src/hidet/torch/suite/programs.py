"""What the suite compiles: calls of operators and of modules, and steps of optimisers, as torch's tables list them."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy

import torch
from hidet import dtypes
from hidet.torch import compat
from hidet.torch.tensors import torch_dtype

DEVICE = "cpu"
STEPS = 3
"""How many steps an optimiser makes."""

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
"""What makes a compiled function of a function; for eager mode, the function itself."""


class Run(Protocol):
    """Runs a program on a tree of inputs, with what is to be compiled given to `compile_with`. dtype: that modules are
    converted to, None for their own.

    It returns a tree of results, and the tensors whose gradients are wanted.
    """

    def __call__(
        self, compile_with: Compile, inputs: Any, dtype: torch.dtype | None
    ) -> tuple[Any, Sequence[torch.Tensor]]: ...


@dataclass(frozen=True, slots=True)
class Program:
    """One sample of one entry of a table. seed: what its values were drawn with."""

    run: Run
    inputs: Any
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """The samples of one operator, module or optimiser. dtype: its name in hidet; direction: "forward", or "backward",
    which is both."""

    database: str
    operator: str
    dtype: str
    direction: str
    info: Any

    @property
    def name(self) -> str:
        """Of the cases, less their number."""
        return f"{self.database}:{self.operator}:{self.dtype}:{self.direction}"

    def programs(self, seed: int) -> list[Program]:
        """Its samples, the same for equal seeds. What torch's own table raises comes through."""
        torch.manual_seed(seed)
        numpy.random.seed(seed)
        random.seed(seed)
        make = {"op": _calls, "hop": _calls, "module": _modules, "optim": _optimizers}[self.database]
        made = make(self.info, torch_of(self.dtype), self.direction == "backward")
        return [replace(program, seed=seed) for program in made]


def torch_of(name: str) -> torch.dtype:
    """torch's dtype of a name of ours, long or short."""
    return torch_dtype(dtypes.dtype(name).name)


def groups(database: str, names: Sequence[str]) -> Iterator[Group]:
    """Every group of a table of torch's."""
    for info in compat.operator_infos(database):
        for name in names:
            dtype = torch_of(name)
            if database == "optim":
                if dtype.is_floating_point:
                    yield Group(database, info.name, name, "forward", info)
            elif database == "module":
                if dtype.is_floating_point and dtype in info.supported_dtypes(DEVICE):
                    yield Group(database, info.name, name, "forward", info)
                    yield Group(database, info.name, name, "backward", info)
            elif dtype in info.supported_dtypes(DEVICE):
                yield Group(database, info.full_name, name, "forward", info)
                if info.supports_autograd and dtype in info.supported_backward_dtypes(DEVICE):
                    yield Group(database, info.full_name, name, "backward", info)


def _calls(info: Any, dtype: torch.dtype, backward: bool) -> Iterator[Program]:
    def call(operands: Any, args: Any, kwargs: Any) -> Any:
        return info.op(operands, *args, **kwargs)

    def of_any(results: Any, operands: Any, args: Any, kwargs: Any) -> Any:
        return chosen(results, operands, kwargs.get("dim", (*args, *[-1] * 3)[CHOOSE[info.name]]))

    for sample in info.sample_inputs(DEVICE, dtype, requires_grad=backward, set_seed=False):

        def run(
            compile_with: Compile,
            inputs: Any,
            dtype: torch.dtype | None,
            finish: Callable[[Any], Any] = sample.output_process_fn_grad,
        ) -> tuple[Any, Sequence[torch.Tensor]]:
            is_free = info.name in FREE and not inputs[2].get("stable")
            wanted = _differentiable(inputs)
            if is_free and backward and inputs[0].requires_grad:
                distinct, operands = by_distinct(inputs[0])
                wanted = [distinct, *_differentiable(inputs[1:])]
                inputs = (operands, *inputs[1:])
            results = compile_with(call)(*inputs)
            if is_free and info.name in CHOOSE:
                results = of_any(results, *inputs)
            return finish(results) if backward else results, wanted

        yield Program(run, (sample.input, sample.args, sample.kwargs))


CHOOSE = {"topk": 1, "kthvalue": 1, "median": 0, "nanmedian": 0, "mode": 0, "sort": 0, "argsort": 0}
"""Operators that are free to return the index of any of equal elements, and which argument is their axis."""


FREE = {*CHOOSE, "msort"}
"""Operators whose gradient may go to any of equal elements."""


def by_distinct(operands: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The distinct elements of a tensor, to be differentiated by, and the tensor as taken from them: the gradient of an
    element is the sum of those of its equals, whichever of them an operator chooses."""
    distinct, places = torch.unique(operands.detach(), return_inverse=True)
    distinct.requires_grad_()
    return distinct, distinct[places]


def chosen(results: Any, operands: torch.Tensor, axis: Any) -> Any:
    """Results with the elements that the indices among them choose instead of the indices."""
    if isinstance(results, torch.Tensor):
        return results if results.dtype != torch.int64 or operands.dim() == 0 else _gathered(operands, results, axis)
    values, indices = results
    return (values, indices if operands.dim() == 0 else _gathered(operands, indices, axis))


def _gathered(operands: torch.Tensor, indices: torch.Tensor, axis: int) -> torch.Tensor:
    whole = indices if indices.dim() == operands.dim() else indices.unsqueeze(axis)
    return operands.detach().gather(axis, whole)


def _modules(info: Any, dtype: torch.dtype, backward: bool) -> Iterator[Program]:
    """Modules in training and in eval mode."""
    for training in (True, False):
        samples = info.module_inputs_func(info, device=DEVICE, dtype=dtype, requires_grad=backward, training=training)
        for sample in samples:
            if sample.forward_input is None:
                continue
            made = sample.constructor_input
            module = info.module_cls(*made.args, **made.kwargs).to(DEVICE, dtype).train(training)

            def run(
                compile_with: Compile, inputs: Any, dtype: torch.dtype | None, module: torch.nn.Module = module
            ) -> tuple[Any, Sequence[torch.Tensor]]:
                # Running statistics change, and lazy modules become others.
                own = copy.deepcopy(module)
                own = own if dtype is None else own.to(dtype)
                results = compile_with(own)(*inputs[0], **inputs[1])
                state = [value.detach() for value in own.state_dict().values() if isinstance(value, torch.Tensor)]
                return (results, state), [*_differentiable(inputs), *_differentiable(list(own.parameters()))]

            yield Program(run, (sample.forward_input.args, sample.forward_input.kwargs))


def _optimizers(info: Any, dtype: torch.dtype, backward: bool) -> Iterator[Program]:
    """A few steps with the same gradients, of all implementations that the table says an optimiser has."""
    for sample in info.optim_inputs_func(device=DEVICE):
        for implementation in ("", *info.supported_impls):
            options = {**sample.kwargs, **({implementation: True} if implementation else {})}

            def run(
                compile_with: Compile, inputs: Any, dtype: torch.dtype | None, options: dict[str, Any] = options
            ) -> tuple[Any, Sequence[torch.Tensor]]:
                parameters, gradients = inputs
                parameters = [torch.nn.Parameter(value) for value in parameters]
                optimizer = info.optim_cls(parameters, **copy.deepcopy(options))
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter.grad = gradient
                step = compile_with(optimizer.step)
                for _ in range(STEPS):
                    # LBFGS evaluates the model anew; without a model the loss stays what it is.
                    step(lambda: torch.zeros(())) if info.step_requires_closure else step()
                state = [dict(optimizer.state[parameter]) for parameter in parameters]
                return ([parameter.detach() for parameter in parameters], state), ()

            shapes = ((5, 3), (7,), ())
            yield Program(run, tuple([torch.randn(shape).to(dtype) for shape in shapes] for _ in range(2)))


def _differentiable(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in compat.leaves(tree) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
