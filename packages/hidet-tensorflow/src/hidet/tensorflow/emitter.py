"""`TensorFlowEmitter`: the emitter of the kit, and constants of variables."""

from __future__ import annotations

from typing import Any

from hidet.frontend import Contents, Emitter
from hidet.graph import GraphBuilder, Value
from hidet.tensorflow.items import Variable


class TensorFlowEmitter(Emitter):
    """Adds what TensorFlow's operators need everywhere. options: of `hidet.frontend.Emitter`."""

    def __init__(self, builder: GraphBuilder, known: Contents | None = None, **options: Any) -> None:
        super().__init__(builder, known, **options)
        self._variables: dict[Variable, Value] = {}

    def read(self, variable: Variable) -> Value:
        """The elements of a variable: one constant of a graph."""
        found = self._variables.get(variable)
        if found is None:
            found = self._variables[variable] = self.builder.constant(variable.array)
        return found
