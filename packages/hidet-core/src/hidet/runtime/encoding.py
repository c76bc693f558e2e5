"""A host program as JSON and back. Symbols are written once; every size is a text over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hidet import dims
from hidet.dims import Dim, DimExpr, Symbol
from hidet.dtypes import dtype
from hidet.errors import ArtifactError
from hidet.runtime.program import (
    ArenaBuffer,
    ConstantSlot,
    ForeignCall,
    HostProgram,
    InputSlot,
    OutputSlot,
    PositionCheck,
    Segment,
    SizeCheck,
    Step,
    SymbolSource,
    TensorSlot,
)

Json = Any


def encode_program(program: HostProgram) -> Json:
    """JSON of a program. ArtifactError when it has steps that run in the frontend's framework."""
    foreign = [step.name for step in program.steps if isinstance(step, ForeignCall)]
    if foreign:
        raise ArtifactError(
            f"the graph runs {len(foreign)} operators outside compiled code: {', '.join(sorted(set(foreign)))}",
            hint="compile with strict=True to see where they come from; such graphs cannot be saved",
        )
    encoder = _Encoder()
    body = {
        "slots": program.slots,
        "inputs": [[encoder.tensor(i.tensor), i.is_parameter, encoder.dim(i.size), i.name] for i in program.inputs],
        "outputs": [
            [encoder.tensor(o.tensor), encoder.dim(o.storage), o.same_as, o.mutates, encoder.dim(o.size)]
            for o in program.outputs
        ],
        "steps": [encoder.step(step) for step in program.steps],
        "buffers": [[b.slot, encoder.dim(b.nbytes), b.first, b.last] for b in program.buffers],
        "sizes": [[slot, encoder.dim(dim)] for slot, dim in program.sizes],
        "constants": [[c.slot, c.index] for c in program.constants],
        "sources": [[s.name, s.input, s.axis, s.offset, s.multiplier, s.divisor] for s in program.symbols],
        "prepare": None if program.prepare is None else encode_program(program.prepare),
        "prepare_inputs": program.prepare_inputs,
        "prepared": program.prepared,
        "size_checks": [
            [encoder.dim(c.left), encoder.dim(c.right), c.is_equality, c.what, c.place] for c in program.size_checks
        ],
    }
    symbols = [[s.name, s.lower, s.upper, s.divisor, s.hint] for s in encoder.symbols.values()]
    return {"symbols": symbols, **body}


def decode_program(data: Json) -> HostProgram:
    """The program of `encode_program`'s JSON. ArtifactError for anything else."""
    try:
        symbols = {name: Symbol(name, *facts) for name, *facts in data["symbols"]}
        decoder = _Decoder(symbols)
        return HostProgram(
            slots=int(data["slots"]),
            inputs=tuple(
                InputSlot(decoder.tensor(t), bool(p), decoder.optional(s), str(n)) for t, p, s, n in data["inputs"]
            ),
            outputs=tuple(
                OutputSlot(decoder.tensor(t), decoder.optional(b), same, mutates, decoder.optional(size))
                for t, b, same, mutates, size in data["outputs"]
            ),
            steps=tuple(map(decoder.step, data["steps"])),
            buffers=tuple(ArenaBuffer(s, decoder.dim(n), first, last) for s, n, first, last in data["buffers"]),
            sizes=tuple((int(slot), decoder.dim(dim)) for slot, dim in data["sizes"]),
            constants=tuple(ConstantSlot(int(slot), int(index)) for slot, index in data["constants"]),
            symbols=tuple(SymbolSource(str(name), int(i), a, *facts) for name, i, a, *facts in data["sources"]),
            prepare=None if data["prepare"] is None else decode_program(data["prepare"]),
            prepare_inputs=tuple(data["prepare_inputs"]),
            prepared=tuple(data["prepared"]),
            size_checks=tuple(
                SizeCheck(decoder.dim(left), decoder.dim(right), bool(equal), str(what), str(place))
                for left, right, equal, what, place in data["size_checks"]
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"the program in the artifact is malformed: {type(error).__name__}: {error}") from error


class _Encoder:
    def __init__(self) -> None:
        self.symbols: dict[str, Symbol] = {}

    def dim(self, dim: Dim | None) -> int | str | None:
        if not isinstance(dim, DimExpr):
            return dim
        for symbol in dims.symbols(dim):
            self.symbols[symbol.name] = symbol
        return str(dim)

    def step(self, step: Step) -> Json:
        """A segment is its symbol, a check a list."""
        if isinstance(step, Segment):
            return step.symbol
        assert isinstance(step, PositionCheck)
        sizes = self.dim(step.extent), self.dim(step.count)
        return [self.tensor(step.worst), *sizes, step.wraps, step.what, step.place]

    def tensor(self, tensor: TensorSlot | None) -> Json:
        if tensor is None:
            return None
        shape, strides = (list(map(self.dim, part)) for part in (tensor.shape, tensor.strides))
        return [tensor.slot, tensor.dtype.name, shape, strides, self.dim(tensor.offset)]


class _Decoder:
    def __init__(self, symbols: dict[str, Symbol]) -> None:
        self._symbols = symbols

    def dim(self, data: int | str) -> Dim:
        return data if isinstance(data, int) else dims.parse_dim(data, self._symbols)

    def optional(self, data: int | str | None) -> Dim | None:
        return None if data is None else self.dim(data)

    def step(self, data: Json) -> Step:
        if isinstance(data, str):
            return Segment(data)
        worst, extent, count, wraps, what, place = data
        slot = self.tensor(worst)
        if slot is None:
            raise ValueError("a check without a tensor")
        return PositionCheck(slot, self.dim(extent), self.dim(count), bool(wraps), str(what), str(place))

    def tensor(self, data: Json) -> TensorSlot | None:
        if data is None:
            return None
        slot, name, shape, strides, offset = data
        each: Callable[[Iterable[int | str]], tuple[Dim, ...]] = lambda part: tuple(map(self.dim, part))  # noqa: E731
        return TensorSlot(int(slot), dtype(name), each(shape), each(strides), self.dim(offset))
