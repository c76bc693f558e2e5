"""A host program and its signature as JSON and back. Symbols are written once; every size is a text over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from hidet import dims
from hidet.dims import Dim, DimExpr, Symbol
from hidet.dtypes import dtype
from hidet.errors import ArtifactError, HidetError
from hidet.runtime.attribute_json import decode_attrs, encode_attrs
from hidet.runtime.program import (
    ArenaBuffer,
    Branch,
    ConstantSlot,
    ForeignCall,
    HostProgram,
    InputSlot,
    Loop,
    NumberCheck,
    ObjectSlot,
    OutputSlot,
    Place,
    PositionCheck,
    ReadSizes,
    Segment,
    SizeCheck,
    Step,
    SubProgram,
    SymbolSource,
    TensorSlot,
    programs_of,
)
from hidet.runtime.signature import Entries, Fixed, Form, GraphInput, GraphOutput, Items, Parameter, Signature

Json = Any

_MALFORMED = (ArithmeticError, AttributeError, HidetError, LookupError, RecursionError, TypeError, ValueError)


def encode_program(program: HostProgram) -> Json:
    """JSON of a program. ArtifactError when it has steps that run in the frontend's framework."""
    steps = [step for part in programs_of(program) for step in part.steps]
    foreign = [step.name for step in steps if isinstance(step, ForeignCall) and not step.is_host]
    if foreign:
        raise ArtifactError(
            f"the graph runs {len(foreign)} operators outside compiled code: {', '.join(sorted(set(foreign)))}",
            hint="compile with strict=True to see where they come from; such graphs cannot be saved",
        )
    encoder = _Encoder()
    body = {
        "slots": program.slots,
        "inputs": [
            [encoder.tensor(i.tensor), i.is_parameter, encoder.dim(i.size), i.name, encoder.host(i.host), i.is_used]
            for i in program.inputs
        ],
        "outputs": [encoder.output(output) for output in program.outputs],
        "steps": [encoder.step(step) for step in program.steps],
        "buffers": [[b.slot, encoder.dim(b.nbytes), b.first, b.last] for b in program.buffers],
        "sizes": [[slot, encoder.dim(dim)] for slot, dim in program.sizes],
        "constants": [[c.slot, c.index] for c in program.constants],
        "stored": [[slot, encoder.dim(nbytes)] for slot, nbytes in program.stored],
        "sources": [_source(s) for s in program.symbols],
        "prepare": None if program.prepare is None else encode_program(program.prepare),
        "prepared": program.prepared,
        "is_repeatable": program.is_repeatable,
        "asserted": program.asserted,
        "aligned": program.aligned,
        "size_checks": [
            [encoder.dim(c.left), encoder.dim(c.right), c.is_equality, c.what, c.place] for c in program.size_checks
        ],
        "number_checks": [[encoder.dim(c.value), c.dtype.name, c.what, c.place] for c in program.number_checks],
    }
    symbols = [[s.name, s.lower, s.upper, s.divisor, s.hint] for s in encoder.symbols.values()]
    return {"symbols": symbols, **body}


FindCall = Callable[[str], Callable[..., Any]]
"""What numpy is to run for the host operator of a name. ArtifactError where no installed plug-in has it."""


def decode_program(data: Json, find_call: FindCall) -> HostProgram:
    """The program of `encode_program`'s JSON. ArtifactError for anything else."""
    with _reading("program"):
        symbols = {name: Symbol(name, *facts) for name, *facts in data["symbols"]}
        decoder = _Decoder(symbols, find_call)
        return HostProgram(
            slots=int(data["slots"]),
            inputs=tuple(
                InputSlot(decoder.tensor(t), bool(p), decoder.optional(s), str(n), decoder.host(h), bool(u))
                for t, p, s, n, h, u in data["inputs"]
            ),
            outputs=tuple(decoder.output(output) for output in data["outputs"]),
            steps=tuple(decoder.step(step) for step in data["steps"]),
            buffers=tuple(ArenaBuffer(s, decoder.dim(n), first, last) for s, n, first, last in data["buffers"]),
            sizes=tuple((int(slot), decoder.dim(dim)) for slot, dim in data["sizes"]),
            constants=tuple(ConstantSlot(int(slot), int(index)) for slot, index in data["constants"]),
            stored=tuple((int(slot), decoder.dim(nbytes)) for slot, nbytes in data["stored"]),
            symbols=_sources(data["sources"]),
            prepare=None if data["prepare"] is None else decode_program(data["prepare"], find_call),
            prepared=tuple(data["prepared"]),
            is_repeatable=bool(data["is_repeatable"]),
            asserted=tuple(data["asserted"]),
            aligned=tuple(data["aligned"]),
            size_checks=tuple(
                SizeCheck(decoder.dim(left), decoder.dim(right), bool(equal), str(what), str(place))
                for left, right, equal, what, place in data["size_checks"]
            ),
            number_checks=tuple(
                NumberCheck(decoder.dim(value), dtype(name), str(what), str(place))
                for value, name, what, place in data["number_checks"]
            ),
        )


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """ArtifactError in the place of whatever JSON that is not ours makes of its readers."""
    try:
        yield
    except ArtifactError:
        raise
    except _MALFORMED as error:
        raise ArtifactError(f"the {what} in the artifact is malformed: {type(error).__name__}: {error}") from error


def encode_signature(signature: Signature | None) -> Json:
    """JSON of what a model takes and returns."""
    if signature is None:
        return None
    parameters = [[p.name, _encode_form(p.form), p.is_optional] for p in signature.parameters]
    results = None if signature.results is None else _encode_form(signature.results)
    return [parameters, signature.positional, signature.tensor_type, signature.size_hint, results]


def decode_signature(data: Json) -> Signature | None:
    """The signature of `encode_signature`'s JSON. ArtifactError for anything else."""
    if data is None:
        return None
    with _reading("signature"):
        parameters, positional, tensor_type, size_hint, results = data
        decoded = (Parameter(str(name), _decode_form(form), bool(optional)) for name, form, optional in parameters)
        returned = None if results is None else _decode_form(results)
        return Signature(tuple(decoded), int(positional), str(tensor_type), str(size_hint), returned)


def _encode_form(form: Form) -> Json:
    if isinstance(form, GraphInput):
        return ["input", form.number]
    if isinstance(form, GraphOutput):
        return ["output", form.number]
    if isinstance(form, Fixed):
        return ["fixed", form.value]
    if isinstance(form, Items):
        return ["list" if form.is_list else "items", [_encode_form(item) for item in form.items]]
    return ["entries", [[key, _encode_form(item)] for key, item in form.entries]]


_LEAVES: dict[str, Callable[[Any], Form]] = {"input": GraphInput, "output": GraphOutput, "fixed": Fixed}


def _decode_form(data: Json) -> Form:
    kind, content = data
    if kind in _LEAVES:
        return _LEAVES[kind](content)
    if kind in ("items", "list"):
        return Items(tuple(_decode_form(item) for item in content), kind == "list")
    return Entries(tuple((key, _decode_form(item)) for key, item in content))


class _Encoder:
    def __init__(self) -> None:
        self.symbols: dict[str, Symbol] = {}

    def dim(self, dim: Dim | None) -> int | str | None:
        if not isinstance(dim, DimExpr):
            return dim
        for symbol in dims.symbols(dim):
            self.symbols[symbol.name] = symbol
        return str(dim)

    def tensor(self, tensor: TensorSlot | None) -> Json:
        if tensor is None:
            return None
        shape, strides = (list(map(self.dim, part)) for part in (tensor.shape, tensor.strides))
        return [tensor.slot, tensor.dtype.name, shape, strides, self.dim(tensor.offset)]

    def output(self, output: OutputSlot) -> Json:
        sizes = self.dim(output.storage), self.dim(output.size)
        shared = output.same_as, output.mutates
        return [self.tensor(output.tensor), *sizes, *shared, self.host(output.host), output.is_made]

    def host(self, slot: ObjectSlot | None) -> Json:
        if slot is None:
            return None
        return [slot.slot, None if slot.shape is None else list(map(self.dim, slot.shape))]

    def place(self, place: Place | None) -> Json:
        if isinstance(place, TensorSlot):
            return {"tensor": self.tensor(place)}
        return {"host": self.host(place)} if isinstance(place, ObjectSlot) else self.dim(place)

    def sub(self, sub: SubProgram) -> Json:
        return [encode_program(sub.program), [self.place(argument) for argument in sub.arguments]]

    def step(self, step: Step) -> Json:
        if isinstance(step, Segment):
            return step.symbol
        if isinstance(step, ReadSizes):
            self.symbols.update((symbol.name, symbol) for symbol in step.symbols)
            return {"read": self.tensor(step.source), "symbols": [symbol.name for symbol in step.symbols]}
        if isinstance(step, PositionCheck):
            sizes = self.dim(step.extent), self.dim(step.count)
            return {"check": [self.tensor(step.worst), *sizes, step.wraps, step.what, step.place]}
        results = [self.place(result) for result in step.results]
        if isinstance(step, ForeignCall):
            assert step.attrs is not None
            return {
                "host": step.name,
                "attrs": encode_attrs(step.attrs, self.dim),
                "places": [[self.place(argument) for argument in step.arguments], results],
                "is_made": step.is_made,
                "defines": [_source(source) for source in step.defines],
            }
        told = [step.name, results, [_source(source) for source in step.defines]]
        if isinstance(step, Branch):
            return {
                "branch": told,
                "on": self.tensor(step.condition),
                "of": [self.sub(step.then), self.sub(step.otherwise)],
            }
        state = [self.place(step.limit), self.tensor(step.condition), step.tests, step.carried]
        return {"loop": told, "state": state, "of": self.sub(step.body)}


def _source(source: SymbolSource) -> Json:
    return [source.name, source.input, source.axis, source.offset, source.multiplier, source.divisor]


def _sources(data: Json) -> tuple[SymbolSource, ...]:
    return tuple(SymbolSource(str(name), int(i), axis, *facts) for name, i, axis, *facts in data)


class _Decoder:
    def __init__(self, symbols: dict[str, Symbol], find_call: FindCall) -> None:
        self._symbols = symbols
        self._find_call = find_call

    def dim(self, data: int | str) -> Dim:
        return data if isinstance(data, int) else dims.parse_dim(data, self._symbols, is_printed=True)

    def optional(self, data: int | str | None) -> Dim | None:
        return None if data is None else self.dim(data)

    def tensor(self, data: Json) -> TensorSlot | None:
        if data is None:
            return None
        slot, name, shape, strides, offset = data
        each: Callable[[Iterable[int | str]], tuple[Dim, ...]] = lambda part: tuple(map(self.dim, part))  # noqa: E731
        return TensorSlot(int(slot), dtype(name), each(shape), each(strides), self.dim(offset))

    def required(self, data: Json) -> TensorSlot:
        tensor = self.tensor(data)
        if tensor is None:
            raise ValueError("a tensor is missing")
        return tensor

    def output(self, data: Json) -> OutputSlot:
        tensor, storage, size, same_as, mutates, host, is_made = data
        slot, nbytes, value = self.tensor(tensor), self.optional(storage), self.optional(size)
        return OutputSlot(slot, nbytes, same_as, mutates, value, self.host(host), bool(is_made))

    def host(self, data: Json) -> ObjectSlot | None:
        if data is None:
            return None
        slot, shape = data
        return ObjectSlot(int(slot), None if shape is None else tuple(map(self.dim, shape)))

    def place(self, data: Json) -> Place | None:
        if isinstance(data, dict):
            return self.host(data["host"]) if "host" in data else self.required(data["tensor"])
        return self.optional(data)

    def sub(self, data: Json) -> SubProgram:
        program, arguments = data
        places = [self.place(argument) for argument in arguments]
        return SubProgram(
            decode_program(program, self._find_call), tuple(place for place in places if place is not None)
        )

    def results(self, data: Json) -> tuple[TensorSlot | ObjectSlot, ...]:
        return tuple(place for place in map(self.place, data) if isinstance(place, TensorSlot | ObjectSlot))

    def host_call(self, data: Json) -> ForeignCall:
        arguments, results = data["places"]
        return ForeignCall(
            str(data["host"]),
            self._find_call(data["host"]),
            tuple(map(self.place, arguments)),
            self.results(results),
            decode_attrs(data["attrs"], self.dim),
            bool(data["is_made"]),
            _sources(data["defines"]),
        )

    def step(self, data: Json) -> Step:
        if isinstance(data, str):
            return Segment(data)
        if "read" in data:
            return ReadSizes(self.required(data["read"]), tuple(self._symbols[name] for name in data["symbols"]))
        if "check" in data:
            worst, extent, count, wraps, what, place = data["check"]
            slot, sizes = self.required(worst), (self.dim(extent), self.dim(count))
            return PositionCheck(slot, *sizes, bool(wraps), str(what), str(place))
        if "host" in data:
            return self.host_call(data)
        name, results, sources = data["branch"] if "branch" in data else data["loop"]
        places = self.results(results)
        if "branch" in data:
            then, otherwise = map(self.sub, data["of"])
            return Branch(str(name), self.required(data["on"]), then, otherwise, places, _sources(sources))
        limit, condition, tests, carried = data["state"]
        most = self.place(limit)
        if isinstance(most, ObjectSlot):
            raise ValueError("the limit of a loop is a host value")
        body = self.sub(data["of"])
        start = self.tensor(condition)
        return Loop(str(name), body, most, start, bool(tests), int(carried), places, _sources(sources))
