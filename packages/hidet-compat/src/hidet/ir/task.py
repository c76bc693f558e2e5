"""`Task`: what an operator of a user means, and how it is computed where the compiler is not to choose.

A task without `implement_cpu` or `implement_cuda` is scheduled as every operator of hidet is, by rules of the target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hidet.compute.definition import Definition
from hidet.compute.printer import definition_lines
from hidet.errors import VerifyError
from hidet.ir.compute import TensorNode, nodes_from
from hidet.ir.expr_text import Names
from hidet.ir.func import Module

if TYPE_CHECKING:
    from hidet.compat.build_task import CompiledTask


class Task:
    """A definition with a name, of tensors that callers give and tensors that it makes.

    inputs, outputs: nodes of `hidet.ir.compute`. inverse_map: not read, the compiler finds which indices an element
    goes to. attributes: numbers and texts for `implement_*` and for printing. VerifyError where an output is computed
    from an input that is not given.
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[TensorNode],
        outputs: Sequence[TensorNode],
        *,
        inverse_map: Mapping[TensorNode, Any] | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.inverse_map = dict(inverse_map or {})
        self.attributes = self.attrs = dict(attributes or {})
        found = list(nodes_from(self.outputs))
        missing = [node.name for node in found if node.is_input() and node not in self.inputs]
        if missing:
            raise VerifyError(f"task {name} reads {missing[0]}, which is none of its inputs")
        stages = tuple(node.stage for node in found if node.stage is not None)
        operands = [tuple(node.operand for node in nodes) for nodes in (self.inputs, self.outputs)]
        self.definition = Definition(operands[0], stages, operands[1])

    @property
    def params(self) -> list[TensorNode]:
        """Inputs and outputs: what a compiled task may be called with."""
        return [*self.inputs, *self.outputs]

    def implement_cpu(self, working_dir: str) -> Module | Sequence[Module]:
        """The program for the host, to be overridden: a module whose entry takes inputs and then outputs, or several
        of which the fastest is taken. NotImplementedError leaves it to the rules of the target."""
        raise NotImplementedError

    def implement_cuda(self, working_dir: str) -> Module | Sequence[Module]:
        """As `implement_cpu`, for a GPU."""
        raise NotImplementedError

    def allow_prologue(self) -> bool:
        """Whether others may be computed where a program of the task reads them; a module that the task gives is
        called as it is, and the compiler decides for the others."""
        return True

    def allow_epilogue(self) -> bool:
        """As `allow_prologue`, where it writes."""
        return True

    def is_injective(self) -> bool:
        """Whether each element of the outputs is a formula without reductions."""
        return self.definition.is_injective

    def signature(self) -> str:
        """Name, types of inputs and of outputs."""
        inputs, outputs = (", ".join(map(repr, nodes)) for nodes in (self.inputs, self.outputs))
        return f"{self.name}({inputs}) -> ({outputs})"

    def build(self, target: str = "cpu") -> CompiledTask:
        """The task compiled for a target."""
        # What compiles tasks knows them.
        built: CompiledTask = import_module("hidet.compat.build_task").build_task(self, target)
        return built

    def __str__(self) -> str:
        lines = [f"  {line}" for line in definition_lines(self.definition, Names())]
        attributes = [f"  # {name} = {value!r}" for name, value in self.attributes.items()]
        return "\n".join([f"{self.signature()}:", *lines, *attributes])
