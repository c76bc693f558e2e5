"""`TensorFlowEmitter`: the emitter of the kit, and constants of variables."""

from __future__ import annotations

from hidet.frontend import Contents, Emitter
from hidet.graph import GraphBuilder, Value
from hidet.tensorflow.items import Variable


class TensorFlowEmitter(Emitter):
    """Adds what TensorFlow's operators need everywhere."""

    def __init__(
        self,
        builder: GraphBuilder,
        known: Contents | None = None,
        *,
        reads_sizes: bool = False,
        max_bytes: int | None = None,
    ) -> None:
        super().__init__(builder, known, reads_sizes=reads_sizes, max_bytes=max_bytes)
        self._variables: dict[Variable, Value] = {}

    def nested(self, builder: GraphBuilder) -> TensorFlowEmitter:
        """An emitter for the builder of a sub-graph."""
        return TensorFlowEmitter(builder, Contents(builder, hint=self.known.hint), max_bytes=self.max_bytes)

    def read(self, variable: Variable) -> Value:
        """The elements of a variable: one constant of a graph."""
        found = self._variables.get(variable)
        if found is None:
            found = self._variables[variable] = self.builder.constant(variable.array)
        return found
