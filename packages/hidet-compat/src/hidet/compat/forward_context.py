"""`hidet.graph.forward_context`: instruments that see each operator of graphs that run in a block."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextvars import Token
from pathlib import Path
from statistics import median
from typing import Any

import numpy

from hidet.api.flow import FlowGraph, Operation
from hidet.api.flow.graph import FORWARD
from hidet.api.flow.operation import apply
from hidet.api.flow.text import operator_name
from hidet.api.tensors.create import asarray
from hidet.api.tensors.tensor import Tensor


class GraphForwardInstrument:
    """To be derived from: what is called while a graph runs operator by operator."""

    def before_graph(self, graph: FlowGraph, inputs: list[Tensor]) -> None:
        """Before the first operator."""

    def after_graph(self, graph: FlowGraph, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        """After the last operator."""

    def before_operator(self, op: Operation, inputs: list[Tensor]) -> None:
        """Before an operator is computed."""

    def after_operator(self, op: Operation, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        """After an operator was computed."""


class GraphForwardDebugInstrument(GraphForwardInstrument):
    """Writes a table of all operators with the least, greatest and mean elements of their outputs, and whether they
    have infinities or NaN; and the elements of all outputs, if those are asked for."""

    def __init__(
        self,
        output_dir: str = "./outs/debug",
        print_summary: bool = False,
        dump_outputs: bool = False,
        dump_op: bool = False,
    ) -> None:
        """dump_op: write what each operator is."""
        self._folder = Path(output_dir)
        self._prints, self._dumps_outputs, self._dumps_operators = print_summary, dump_outputs, dump_op
        self._rows: list[str] = []

    def before_graph(self, graph: FlowGraph, inputs: list[Tensor]) -> None:
        """Writes the graph."""
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "graph.txt").write_text(f"{graph}\n")
        self._rows = [f"{'operator':32} {'least':>12} {'greatest':>12} {'mean':>12} {'inf':>5} {'nan':>5}"]

    def after_operator(self, op: Operation, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        """A row an output."""
        number = len(self._rows) - 1
        for place, output in enumerate(outputs):
            elements = output.numpy().astype(numpy.float64)
            finite = elements[numpy.isfinite(elements)]
            numbers = (finite.min(), finite.max(), finite.mean()) if finite.size else (numpy.nan,) * 3
            shown = " ".join(f"{value:12.4g}" for value in numbers)
            flags = f"{numpy.isinf(elements).any()!s:>5} {numpy.isnan(elements).any()!s:>5}"
            self._rows.append(f"{operator_name(op.name):32} {shown} {flags}")
            if self._dumps_outputs:
                numpy.save(self._folder / f"{number}_{op.name}_{place}.npy", output.numpy(), allow_pickle=False)
        if self._dumps_operators:
            (self._folder / f"{number}_{op.name}.txt").write_text(f"{op!r}\n")

    def after_graph(self, graph: FlowGraph, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        """Writes the table."""
        table = "\n".join(self._rows) + "\n"
        (self._folder / "summary.txt").write_text(table)
        if self._prints:
            print(table, end="")


class GraphForwardBenchmarkInstrument(GraphForwardInstrument):
    """Writes a table of the milliseconds that each operator takes by itself."""

    def __init__(
        self,
        output_dir: str = "./outs/benchmark",
        print_summary: bool = False,
        warmup: int = 3,
        number: int = 10,
        repeat: int = 3,
    ) -> None:
        """warmup: calls before measuring. number: calls of a measurement. repeat: measurements, of which the median is
        taken."""
        self._folder, self._prints = Path(output_dir), print_summary
        self._warmup, self._number, self._repeat = warmup, number, repeat
        self._times: list[tuple[str, float]] = []

    def before_graph(self, graph: FlowGraph, inputs: list[Tensor]) -> None:
        """Forgets the graph before."""
        self._times = []

    def after_operator(self, op: Operation, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        """Measures the operator."""
        given = _arguments(op, inputs)
        for _ in range(self._warmup):
            _computed(op, given)
        found = []
        for _ in range(self._repeat):
            start = time.perf_counter()
            for _ in range(self._number):
                results = _computed(op, given)
            if results[0].device != "cpu":
                results[0].numpy()  # waits
            found.append((time.perf_counter() - start) / self._number)
        self._times.append((operator_name(op.name), 1e3 * median(found)))

    def after_graph(self, graph: FlowGraph, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        """Writes the table, the slowest operator first."""
        whole = sum(time for _, time in self._times) or 1.0
        rows = [f"{'operator':32} {'ms':>10} {'%':>6}"]
        rows += [
            f"{name:32} {time:10.4f} {100 * time / whole:6.1f}" for name, time in sorted(self._times, key=_slowest)
        ]
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "summary.txt").write_text("\n".join(rows) + "\n")
        if self._prints:
            print("\n".join(rows))


def _slowest(row: tuple[str, float]) -> float:
    return -row[1]


class GraphForwardContext:
    """For `with`: graphs run operator by operator in the block, and instruments see each."""

    _open: list[GraphForwardContext] = []  # noqa: RUF012  # shared by all: a stack

    def __init__(self) -> None:
        self.instruments: list[GraphForwardInstrument] = []
        self._token: Token[Any] | None = None

    @classmethod
    def current(cls) -> GraphForwardContext:
        """The innermost context, or one without instruments."""
        return cls._open[-1] if cls._open else cls()

    def __enter__(self) -> GraphForwardContext:
        self._open.append(self)
        self._token = FORWARD.set(self._forward)
        return self

    def __exit__(self, *error: object) -> None:
        assert self._token is not None
        self._open.remove(self)
        FORWARD.reset(self._token)

    def append_instrument(self, instrument: GraphForwardInstrument) -> None:
        """Have another instrument see operators."""
        self.instruments.append(instrument)

    def debug(
        self,
        output_dir: str = "./outs/debug",
        print_summary: bool = False,
        dump_outputs: bool = False,
        dump_op: bool = False,
    ) -> None:
        """`GraphForwardDebugInstrument`."""
        self.append_instrument(GraphForwardDebugInstrument(output_dir, print_summary, dump_outputs, dump_op))

    def benchmark(
        self,
        output_dir: str = "./outs/benchmark",
        print_summary: bool = False,
        warmup: int = 3,
        number: int = 10,
        repeat: int = 3,
    ) -> None:
        """`GraphForwardBenchmarkInstrument`."""
        self.append_instrument(GraphForwardBenchmarkInstrument(output_dir, print_summary, warmup, number, repeat))

    def _forward(self, graph: FlowGraph, inputs: Sequence[Any]) -> list[Any]:
        given = [asarray(tensor) for tensor in inputs]
        for instrument in self.instruments:
            instrument.before_graph(graph, given)
        known = dict(zip(graph.inputs, given, strict=True))
        for node in graph.nodes:
            read = [known.get(tensor, tensor) for tensor in node.inputs if tensor is not None]
            for instrument in self.instruments:
                instrument.before_operator(node, read)
            results = list(_computed(node, _arguments(node, read)))
            for instrument in self.instruments:
                instrument.after_operator(node, read, results)
            known.update(zip(node.outputs, results, strict=True))
        outputs = [known.get(tensor, tensor) for tensor in graph.outputs]
        for instrument in self.instruments:
            instrument.after_graph(graph, given, outputs)
        return outputs


def _arguments(node: Operation, read: Sequence[Tensor]) -> list[Tensor | None]:
    """Tensors in the place of those that a node reads, and None for what is absent."""
    rest = iter(read)
    return [None if tensor is None else next(rest) for tensor in node.inputs]


def _computed(node: Operation, given: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    return apply(node.op.name, given, node.attrs)


def forward_context() -> GraphForwardContext:
    """A context whose instruments see each operator of the graphs that run in its block."""
    return GraphForwardContext()
