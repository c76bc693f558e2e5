"""`LiteEmitter`: the emitter of hidet-tensorflow, and what the file says of the tensors around a node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from hidet.frontend import Contents
from hidet.graph import GraphBuilder
from hidet.tensorflow.emitter import TensorFlowEmitter
from hidet.tensorflow.tflite.loader import LiteTensor


@dataclass(frozen=True, slots=True)
class VariableName:
    """What stands for a variable while importing."""

    name: str


@dataclass(slots=True)
class Variables:
    """Elements of variables by name. is_being_set: whether the sub-graph that is written sets them."""

    arrays: dict[str, Any] = field(default_factory=dict)
    is_being_set: bool = False

    @contextmanager
    def being_set(self) -> Iterator[None]:
        """A sub-graph may set variables."""
        self.is_being_set = True
        try:
            yield
        finally:
            self.is_being_set = False


class LiteEmitter(TensorFlowEmitter):
    """operands, results: tensors of the node being imported, None for absent operands. variables: of the model."""

    def __init__(self, builder: GraphBuilder, known: Contents | None = None, **options: Any) -> None:
        super().__init__(builder, known, **options)
        self.operands: Sequence[LiteTensor | None] = ()
        self.results: Sequence[LiteTensor] = ()
        self.variables = Variables()

    def nested(self, builder: GraphBuilder) -> Self:
        """An emitter for the builder of a sub-graph, with the same variables."""
        made = super().nested(builder)
        made.variables = self.variables
        return made
