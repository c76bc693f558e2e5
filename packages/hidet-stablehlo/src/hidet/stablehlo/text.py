"""StableHLO's text: the pretty form that jax prints, and MLIR's generic form.

Pretty operations are read by what they are made of, in whatever order: operands, `name = attribute`, words, ranges.
What these are called in VHLO is a table. Nothing here needs to know how many operands an operator has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy

from hidet.dtypes import from_numpy
from hidet.errors import ImportFailed
from hidet.loc import Loc
from hidet.stablehlo.attributes import (
    read_attribute,
    read_convolution_numbers,
    read_dictionary,
    read_results,
    read_type,
    symbol_of,
    text_of,
)
from hidet.stablehlo.lexer import Words
from hidet.stablehlo.program import (
    MAX_NESTING,
    Attribute,
    Block,
    Function,
    FunctionType,
    Module,
    Operation,
    OtherType,
    Place,
    Ranked,
    Type,
)
from hidet.stablehlo.text_places import Places
from hidet.stablehlo.vhlo import operator_name

Scope = dict[str, tuple[int, ...]]
"""What names of values stand for: several, where an operation has several results."""


def read_text(text: str, source: str | None = None) -> Module:
    """The module in a text of StableHLO. source: the file, for messages. ImportFailed for what is none, with its
    line."""
    return _Reader(Words(text, source), source).module()


# Pretty operators' own names of attributes -> VHLO's, "" for those of every operator that has no other.
_FIELDS: Mapping[str, Mapping[str, str]] = {
    "": {"dim": "dimension", "dims": "dimensions", "across dimensions": "dimensions"},
    "broadcast_in_dim": {"dims": "broadcast_dimensions"},
    "dynamic_broadcast_in_dim": {"dims": "broadcast_dimensions"},
    "broadcast": {"sizes": "broadcast_sizes"},
    "dynamic_iota": {"dim": "iota_dimension"},
    "dynamic_slice": {"sizes": "slice_sizes"},
    "fft": {"type": "fft_type", "length": "fft_length"},
    "iota": {"dim": "iota_dimension"},
    "pad": {"low": "edge_padding_low", "high": "edge_padding_high", "interior": "interior_padding"},
    "rng": {"distribution": "rng_distribution"},
    "rng_bit_generator": {"algorithm": "rng_algorithm"},
    "transpose": {"dims": "permutation"},
}
_WINDOW = {
    "stride": "window_strides",
    "pad": "padding",
    "lhs_dilate": "lhs_dilation",
    "rhs_dilate": "rhs_dilation",
    "reverse": "window_reversal",
}
# Structured attributes of the generic form, whose parts are attributes of their own.
_STRUCTURED = ("dimension_numbers", "scatter_dimension_numbers", "dot_dimension_numbers")


@dataclass(slots=True)
class _Parts:
    """What a pretty operation is made of."""

    operands: list[int] = field(default_factory=list)
    attributes: dict[str, Attribute] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    ranges: list[tuple[int, int, int]] | None = None


class _Reader:
    def __init__(self, words: Words, source: str | None) -> None:
        self.words = words
        self.source = source
        self.aliases: dict[str, Attribute] = {}
        self.places = Places()
        self.values = 0

    def module(self) -> Module:
        words = self.words
        name, functions, attributes = "main", [], {}
        while words.next.kind != "end":
            if words.next.kind in ("alias", "type"):
                self._alias()
            elif words.comes("module") or words.comes("builtin.module"):
                words.take()
                if words.next.kind == "symbol":
                    name = symbol_of(words.take().text).name
                if words.skip("attributes"):
                    attributes = read_dictionary(words, self.aliases)
                words.expect("{")
                while not words.skip("}"):
                    functions.append(self._function())
                self._place()
            elif words.next.text == '"builtin.module"':
                (operation,) = self._operations_until({}, 0, one=True)
                functions += [
                    self._generic_function(inner) for block in operation.regions for inner in block.operations
                ]
            else:
                functions.append(self._function())
        found = {function.name: function for function in functions}
        if len(found) != len(functions):
            raise ImportFailed("the module has two functions of one name")
        if not found:
            raise words.error("it has no functions")
        return Module(name, found, self.source, attributes)

    def _alias(self) -> None:
        words = self.words
        name = words.take()
        words.expect("=")
        if name.kind == "type":
            read_type(words)
        elif words.skip("loc"):
            self.places.aliases[name.text[1:]] = words.skip_group()
        else:
            self.aliases[name.text[1:]] = read_attribute(words, self.aliases)

    def _place(self) -> str | None:
        """The group behind `loc`, if one comes."""
        return self.words.skip_group() if self.words.skip("loc") else None

    def _located(self, at: int, group: str | None) -> Place:
        """Where an operation comes from: what the text says, else its own line."""
        return partial(self._loc, at, group)

    def _loc(self, at: int, group: str | None) -> Loc | None:
        found = None if group is None else self.places.find(group)
        return found if found is not None else self.words.loc(at)

    # --- values --------------------------------------------------------------------------------------------------

    def _new(self, count: int) -> tuple[int, ...]:
        self.values += count
        return tuple(range(self.values - count, self.values))

    def _defined(self, scope: Scope, name: str, numbers: tuple[int, ...]) -> None:
        scope[name] = numbers

    def _value(self, scope: Scope) -> int:
        word = self.words.take()
        name, _, place = word.text.partition("#")
        numbers = scope.get(name) if word.kind == "value" else None
        number = int(place) if place else 0
        if numbers is None or number >= len(numbers):
            raise self.words.error(f"{word.text!r} is no value that is made before", word.at)
        return numbers[number]

    def _values(self, scope: Scope, end: str) -> tuple[int, ...]:
        found = []
        while not self.words.skip(end):
            found.append(self._value(scope))
            if not self.words.comes(end):
                self.words.expect(",")
        return tuple(found)

    # --- functions -----------------------------------------------------------------------------------------------

    def _function(self) -> Function:
        words = self.words
        if words.next.text == '"func.func"':
            (operation,) = self._operations_until({}, 0, one=True)
            return self._generic_function(operation)
        if not (words.skip("func.func") or words.skip("func")):
            raise words.unexpected("a function")
        if words.comes("public") or words.comes("private") or words.comes("nested"):
            words.take()
        name = symbol_of(words.take_kind("symbol", "the name of a function")).name
        scope: Scope = {}
        types: list[Type] = []
        names: list[str] = []
        attributes: list[Mapping[str, Attribute]] = []
        arguments: list[int] = []
        words.expect("(")
        while not words.skip(")"):
            value = words.take_kind("value", "an argument")
            words.expect(":")
            types.append(read_type(words))
            attributes.append(read_dictionary(words, self.aliases) if words.comes("{") else {})
            place = self._place()
            loc = None if place is None else self.places.find(place)
            names.append("" if loc is None or loc.name is None or loc.file is not None else loc.name)
            (number,) = self._new(1)
            arguments.append(number)
            self._defined(scope, value, (number,))
            if not words.comes(")"):
                words.expect(",")
        results = self._function_results() if words.skip("->") else []
        if words.skip("attributes"):
            read_dictionary(words, self.aliases)
        words.expect("{")
        operations, returned = self._body(scope, 1)
        self._place()
        block = Block(tuple(arguments), tuple(types), tuple(operations), returned)
        return Function(name, block, tuple(names), tuple(attributes), tuple(results))

    def _function_results(self) -> list[Mapping[str, Attribute]]:
        words = self.words
        if not words.skip("("):
            read_type(words)
            return [{}]
        found: list[Mapping[str, Attribute]] = []
        while not words.skip(")"):
            read_type(words)
            found.append(read_dictionary(words, self.aliases) if words.comes("{") else {})
            if not words.comes(")"):
                words.expect(",")
        return found

    def _generic_function(self, operation: Operation) -> Function:
        name = operation.attributes.get("sym_name")
        if operation.name != "func" or not isinstance(name, str) or len(operation.regions) != 1:
            raise ImportFailed(f"the module holds a {operation.name}, expected functions", loc=operation.place())
        (block,) = operation.regions
        count = len(block.arguments)
        return Function(name, block, ("",) * count, ({},) * count, ({},) * len(block.returned))

    # --- operations ----------------------------------------------------------------------------------------------

    def _body(self, scope: Scope, depth: int) -> tuple[list[Operation], tuple[int, ...]]:
        """The operations of a region up to the brace that ends it, and what it returns."""
        operations = self._operations_until(scope, depth)
        if not operations or operations[-1].name != "return":
            return operations, ()
        return operations[:-1], operations[-1].operands

    def _operations_until(self, scope: Scope, depth: int, *, one: bool = False) -> list[Operation]:
        words = self.words
        if depth > MAX_NESTING:
            raise words.error("regions are nested too deeply")
        found: list[Operation] = []
        while one or not words.skip("}"):
            if words.next.kind == "block":
                raise words.error("a region has several blocks, expected one")
            found.append(self._operation(scope, depth))
            if one:
                break
            if found[-1].name == "return" and not words.comes("}"):
                raise words.unexpected("'}'")
        return found

    def _operation(self, scope: Scope, depth: int) -> Operation:
        words = self.words
        start = words.next.at
        names: list[tuple[str, int]] = []
        while words.next.kind == "value":
            name = words.take().text
            count = 1
            if words.skip(":"):
                count = int(words.take_kind("number", "a number of results"))
                if not 0 <= count <= 1 << 12:
                    raise words.error(f"an operation with {count} results", start)
            names.append((name, count))
            if not words.skip(","):
                words.expect("=")
                break
        word = words.take()
        if word.kind == "string":
            made = self._generic(operator_name(text_of(word.text)), scope, depth)
        elif word.kind == "name":
            made = self._pretty(operator_name(word.text), scope, depth)
        else:
            raise words.error(f"{word.text!r} where an operation is expected", word.at)
        name, operands, types, attributes, regions = made
        results = self._new(len(types))
        if sum(count for _, count in names) not in (0, len(results)):
            raise words.error(f"{name} has {len(results)} results and as many names as {dict(names)}", start)
        place = self._place()
        left = results
        for value, count in names:
            self._defined(scope, value, left[:count])
            left = left[count:]
        return Operation(name, operands, results, types, attributes, regions, self._located(start, place))

    def _generic(self, name: str, scope: Scope, depth: int) -> Any:
        words = self.words
        words.expect("(")
        operands = self._values(scope, ")")
        if words.comes("["):
            raise words.error("an operation jumps to another block")
        attributes: dict[str, Attribute] = {}
        if words.skip("<"):
            attributes.update(read_dictionary(words, self.aliases))
            words.expect(">")
        regions: list[Block] = []
        if words.skip("("):
            while not words.skip(")"):
                regions.append(self._region(scope if name not in ("func", "module") else {}, depth + 1))
                if not words.comes(")"):
                    words.expect(",")
        if words.comes("{"):
            attributes.update(read_dictionary(words, self.aliases))
        words.expect(":")
        type_ = read_type(words)
        if not isinstance(type_, FunctionType):
            raise words.error(f"{name} in the generic form has no type of a function")
        return name, operands, type_.results, _flattened(attributes), tuple(regions)

    def _region(self, outer: Scope, depth: int) -> Block:
        """{ ^bb0(%a: type): operations }."""
        words = self.words
        words.expect("{")
        scope = dict(outer)
        arguments: list[int] = []
        types: list[Type] = []
        if words.next.kind == "block":
            words.take()
            if words.skip("("):
                while not words.skip(")"):
                    value = words.take_kind("value", "an argument")
                    words.expect(":")
                    types.append(read_type(words))
                    self._place()
                    arguments += self._new(1)
                    self._defined(scope, value, (arguments[-1],))
                    if not words.comes(")"):
                        words.expect(",")
            words.expect(":")
        operations, returned = self._body(scope, depth)
        return Block(tuple(arguments), tuple(types), tuple(operations), returned)

    def _pretty(self, name: str, scope: Scope, depth: int) -> Any:
        special = _SPECIAL.get(name)
        if special is not None:
            return special(self, name, scope, depth)
        parts = self._parts(name, scope)
        types = self._types()
        if name == "compare":
            parts.attributes["comparison_direction"] = parts.words[0] if parts.words else None
            parts.attributes["compare_type"] = parts.words[1] if len(parts.words) > 1 else ""
        if name == "slice" and parts.ranges is not None:
            names = ("start_indices", "limit_indices", "strides")
            columns = zip(*parts.ranges, strict=True) if parts.ranges else ((),) * 3
            parts.attributes.update(zip(names, columns, strict=True))
        if name == "get_tuple_element" and parts.ranges:
            parts.attributes["index"] = parts.ranges[0][0]
        if name == "reduce_precision":
            _set_format(parts.attributes)
        return name, tuple(parts.operands), types, _flattened(parts.attributes), ()

    def _types(self) -> tuple[Type, ...]:
        """The types of the results: those of a function, behind an arrow, or the last of a list."""
        words = self.words
        if not words.skip(":"):
            return ()
        found = [read_type(words)]
        while words.skip(","):
            found.append(read_type(words))
        if words.skip("->"):
            return read_results(words)
        last = found[-1]
        return last.results if isinstance(last, FunctionType) else (last,)

    def _parts(self, name: str, scope: Scope) -> _Parts:
        words = self.words
        parts = _Parts()
        while not words.comes(":") and words.next.kind != "end":
            word = words.next
            if word.kind == "value":
                parts.operands.append(self._value(scope))
            elif word.text == "(" or word.text == ")" or word.text == ",":
                words.take()
            elif word.text == "{":
                parts.attributes.update(read_dictionary(words, self.aliases))
            elif word.text == "[":
                parts.ranges = self._ranges()
            elif word.kind == "symbol":
                parts.attributes["symbol"] = symbol_of(words.take().text)
            elif word.kind == "string":
                parts.attributes["name"] = text_of(words.take().text)
            elif word.kind == "name":
                key = words.take().text
                if key == "across":
                    key = f"across {words.take().text}"
                if not words.skip("="):
                    if key == "loc" or "." in key:
                        raise words.error(f"{key!r} in the middle of {name}", word.at)
                    parts.words.append(key)
                else:
                    self._field(name, key, parts.attributes)
            else:
                raise words.unexpected(f"more of {name}")
        return parts

    def _field(self, name: str, key: str, attributes: dict[str, Attribute]) -> None:
        words = self.words
        if key == "dim_numbers":
            attributes.update(read_convolution_numbers(words))
            return
        if words.next.kind == "name" and words.next.text not in ("dense", "array", "true", "false"):
            found: Attribute = words.take().text
        elif words.next.kind == "number":
            # The colon behind it belongs to the operation.
            found = int(words.take().text, 0)
        else:
            found = read_attribute(words, self.aliases)
        if key == "window" and isinstance(found, dict):
            attributes.update({_WINDOW.get(str(part), str(part)): value for part, value in found.items()})
        elif key in ("contracting_dims", "batching_dims"):
            if words.next.text != "x":
                raise words.unexpected("'x'")
            words.take()
            stem = key.replace("_dims", "_dimensions")
            attributes[f"lhs_{stem}"] = found
            attributes[f"rhs_{stem}"] = read_attribute(words, self.aliases)
        else:
            attributes[_FIELDS.get(name, {}).get(key) or _FIELDS[""].get(key, key)] = found

    def _ranges(self) -> list[tuple[int, int, int]]:
        """[start:stop:step, …], or numbers."""
        words = self.words
        words.expect("[")
        found = []
        while not words.skip("]"):
            numbers = [int(words.take_kind("number", "a number"))]
            while words.skip(":"):
                numbers.append(int(words.take_kind("number", "a number")))
            start, stop, step = (*numbers, *(numbers[0] + 1, 1)[len(numbers) - 1 :])[:3]
            found.append((start, stop, step))
            if not words.comes("]"):
                words.expect(",")
        return found


def _set_format(attributes: dict[str, Attribute]) -> None:
    """e5m10."""
    text = attributes.pop("format", None)
    if isinstance(text, str):
        exponent, _, mantissa = text[1:].partition("m")
        if exponent.isdigit() and mantissa.isdigit():
            attributes.update(exponent_bits=int(exponent), mantissa_bits=int(mantissa))


def _flattened(attributes: Mapping[str, Attribute]) -> dict[str, Attribute]:
    """Parts of structured attributes as attributes of their own, as VHLO has them."""
    found = dict(attributes)
    for name in _STRUCTURED:
        inner = found.get(name)
        if isinstance(inner, dict):
            del found[name]
            found.update(inner)
    return found


# --- operators with a form of their own ------------------------------------------------------------------------------


def _constant(reader: _Reader, name: str, scope: Scope, depth: int) -> Any:
    words = reader.words
    attributes = read_dictionary(words, reader.aliases) if words.comes("{") else {}
    value = attributes["value"] = read_attribute(words, reader.aliases)
    if isinstance(value, numpy.ndarray):
        type_: Type = Ranked(from_numpy(value.dtype), value.shape)
    else:
        type_ = OtherType(str(value)[:80])
    return name, (), (type_,), attributes, ()


def _return(reader: _Reader, name: str, scope: Scope, depth: int) -> Any:
    words = reader.words
    operands = []
    while words.next.kind == "value":
        operands.append(reader._value(scope))
        if not words.skip(","):
            break
    if operands:
        reader._types()
    return name, tuple(operands), (), {}, ()


def _call(reader: _Reader, name: str, scope: Scope, depth: int) -> Any:
    parts = reader._parts(name, scope)
    attributes = dict(parts.attributes)
    symbol = attributes.pop("symbol", None)
    attributes["call_target_name" if name == "custom_call" else "callee"] = getattr(symbol, "name", None)
    return name, tuple(parts.operands), reader._types(), attributes, ()


def _reduce(reader: _Reader, name: str, scope: Scope, depth: int) -> Any:
    """reduce(%x init: %a), (%y init: %b) applies operator across dimensions = [..] : type, or with a reducer."""
    words = reader.words
    xs: list[int] = []
    starts: list[int] = []
    while words.skip("("):
        xs.append(reader._value(scope))
        words.expect("init")
        words.expect(":")
        starts.append(reader._value(scope))
        words.expect(")")
        words.skip(",")
    operator = operator_name(words.take_kind("name", "an operator")) if words.skip("applies") else None
    parts = reader._parts(name, scope)
    types = reader._types()
    if operator is not None:
        block = reader_block(reader, operator, types)
    else:
        words.expect("reducer")
        block = _reducer(reader, scope, len(xs), depth)
    return name, (*xs, *starts), types, parts.attributes, (block,)


def reader_block(reader: _Reader, operator: str, types: Sequence[Type]) -> Block:
    """The region that applies one operator to its two arguments."""
    element = types[0] if types else OtherType("nothing")
    scalar = Ranked(element.dtype, ()) if isinstance(element, Ranked) else element
    arguments, results = reader._new(2), reader._new(1)
    operation = Operation(operator, arguments, results, (scalar,), {})
    return Block(arguments, (scalar, scalar), (operation,), results)


def _reducer(reader: _Reader, outer: Scope, count: int, depth: int) -> Block:
    """reducer(%a: type, %b: type) (%c: type, %d: type) { … }: pairs of both sides."""
    words = reader.words
    scope = dict(outer)
    left: list[tuple[int, Type]] = []
    right: list[tuple[int, Type]] = []
    while words.skip("("):
        for side in (left, right):
            value = words.take_kind("value", "an argument")
            words.expect(":")
            type_ = read_type(words)
            reader._place()
            (number,) = reader._new(1)
            side.append((number, type_))
            reader._defined(scope, value, (number,))
            words.skip(",")
        words.expect(")")
    words.expect("{")
    operations, returned = reader._body(scope, depth + 1)
    arguments = [*left, *right]
    return Block(
        tuple(number for number, _ in arguments), tuple(type_ for _, type_ in arguments), tuple(operations), returned
    )


def _while(reader: _Reader, name: str, scope: Scope, depth: int) -> Any:
    """while(%a = %x, …) : types attributes {…} cond { … } do { … }."""
    words = reader.words
    names: list[str] = []
    operands: list[int] = []
    words.expect("(")
    while not words.skip(")"):
        names.append(words.take_kind("value", "an argument"))
        words.expect("=")
        operands.append(reader._value(scope))
        if not words.comes(")"):
            words.expect(",")
    types: list[Type] = []
    if words.skip(":"):
        types.append(read_type(words))
        while words.skip(","):
            types.append(read_type(words))
    if len(types) != len(operands):
        raise words.error(f"while carries {len(operands)} values of {len(types)} types")
    attributes = read_dictionary(words, reader.aliases) if words.skip("attributes") else {}
    regions = []
    for word in ("cond", "do"):
        words.expect(word)
        words.expect("{")
        inner = dict(scope)
        arguments = reader._new(len(names))
        for value, number in zip(names, arguments, strict=True):
            reader._defined(inner, value, (number,))
        operations, returned = reader._body(inner, depth + 1)
        regions.append(Block(arguments, tuple(types), tuple(operations), returned))
    return name, tuple(operands), tuple(types), attributes, tuple(regions)


_SPECIAL: Mapping[str, Callable[[_Reader, str, Scope, int], Any]] = {
    "call": _call,
    "constant": _constant,
    "custom_call": _call,
    "reduce": _reduce,
    "return": _return,
    "while": _while,
}
