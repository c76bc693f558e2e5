"""MLIR bytecode, the container of portable artifacts: sections, names, operations. What dialects write into it is read
by `hidet.stablehlo.vhlo`.

Everything is read by our own code, which never reads beyond the end, never follows a reference into itself and makes no
more than the file has bytes for: MLIR's own reader trusts its input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hidet.errors import ImportFailed
from hidet.loc import Loc
from hidet.stablehlo.bytes_reader import BytesReader, damaged
from hidet.stablehlo.program import MAX_NESTING, Attribute, Block, Function, Module, Opaque, Operation, OtherType, Type
from hidet.stablehlo.properties import attribute_names
from hidet.stablehlo.vhlo import Tables, function_of, operator_name, read_attribute, read_type

MAGIC = b"ML\xefR"

_NEWEST = 6
"""The newest version of the format that is known."""

_STRINGS, _DIALECTS, _ATTRIBUTES, _OFFSETS, _OPERATIONS, _RESOURCES, _RESOURCE_OFFSETS, _VERSIONS, _PROPERTIES = range(
    9
)

# What an operation has, by the bits of its mask.
_HAS_ATTRIBUTES, _HAS_RESULTS, _HAS_OPERANDS, _HAS_SUCCESSORS, _HAS_REGIONS, _HAS_ORDERS, _HAS_PROPERTIES = (
    1 << bit for bit in range(7)
)

# Versions of the format that brought something.
_VERSIONED_DIALECTS, _LAZY, _ORDERS, _OPTIONAL_PLACES, _NATIVE_PROPERTIES = 1, 2, 3, 4, 5


def read_bytecode(data: memoryview, source: str | None = None) -> Module:
    """The module in MLIR bytecode of VHLO, as StableHLO's portable artifacts are. Constants are views of `data`.

    source: the file, for messages. ImportFailed for what is damaged, or newer than what is known.
    """
    reader = BytesReader(data)
    if bytes(reader.bytes(4)) != MAGIC:
        raise damaged("it does not begin as MLIR bytecode does")
    version = reader.number()
    if version > _NEWEST:
        raise ImportFailed(
            f"the file has version {version} of MLIR's bytecode, and hidet knows up to {_NEWEST}",
            hint="write it with an older version of jax, or as text",
        )
    reader.text()  # who wrote it
    sections: dict[int, BytesReader] = {}
    while not reader.is_empty:
        number, part = _section(reader)
        if number in sections:
            raise damaged(f"it has section {number} twice")
        sections[number] = part
    for number in (_STRINGS, _DIALECTS, _ATTRIBUTES, _OFFSETS, _OPERATIONS):
        if number not in sections:
            raise damaged(f"it has no section {number}")
    return _Reader(version, sections, source).module()


def _section(reader: BytesReader) -> tuple[int, BytesReader]:
    number = reader.byte()
    size = reader.number()
    if number & 0x80:
        alignment = reader.number()
        if not 0 < alignment <= 1 << 16 or alignment & (alignment - 1):
            raise damaged(f"a section is aligned to {alignment}")
        reader.bytes(-reader.at % alignment)
    return number & 0x7F, reader.part(size)


@dataclass(frozen=True, slots=True)
class _Entry:
    """Where an attribute or type is, and which dialect wrote it. is_encoded: as bytes; else as text."""

    dialect: str
    at: int
    size: int
    is_encoded: bool


class _Reader:
    def __init__(self, version: int, sections: Mapping[int, BytesReader], source: str | None) -> None:
        self.version = version
        self.source = source
        self.data = sections[_ATTRIBUTES]
        self.strings = _strings(sections[_STRINGS])
        self.operators: list[str] = []
        self.dialects = self._dialects(sections[_DIALECTS])
        self.attributes, self.types = self._entries(sections[_OFFSETS])
        self.operations = sections[_OPERATIONS]
        self.found: dict[tuple[bool, int], Any] = {}
        self.open: set[tuple[bool, int]] = set()
        self.properties = _properties(sections.get(_PROPERTIES))
        self.tables = Tables(self.string, self.attribute, self.type)
        self.values = 0
        self.argument_places: dict[int, tuple[int | None, ...]] = {}

    def string(self, number: int) -> str:
        if number >= len(self.strings):
            raise damaged(f"it has no string {number}")
        return self.strings[number]

    def _dialects(self, reader: BytesReader) -> list[str]:
        names = []
        for _ in range(reader.count()):
            if self.version < _VERSIONED_DIALECTS:
                names.append(self.string(reader.number()))
                continue
            name, has_version = reader.flagged()
            names.append(self.string(name))
            if has_version:
                _section(reader)
        if self.version >= _OPTIONAL_PLACES:
            reader.number()
        while not reader.is_empty:
            dialect = _at(names, reader.number(), "dialect")
            for _ in range(reader.count()):
                number = reader.number()
                self.operators.append(
                    f"{dialect}.{self.string(number >> 1 if self.version >= _NATIVE_PROPERTIES else number)}"
                )
        return names

    def _entries(self, reader: BytesReader) -> tuple[list[_Entry], list[_Entry]]:
        counts = reader.number(), reader.number()
        at = self.data.at
        tables: list[list[_Entry]] = []
        for count in counts:
            entries: list[_Entry] = []
            while len(entries) < count:
                dialect = _at(self.dialects, reader.number(), "dialect")
                for _ in range(reader.count()):
                    size, is_encoded = reader.flagged()
                    if size > self.data.end - at:
                        raise damaged("an attribute or type is said to be longer than all of them")
                    entries.append(_Entry(dialect, at, size, is_encoded))
                    at += size
            tables.append(entries)
        return tables[0], tables[1]

    def attribute(self, number: int) -> Attribute:
        return self._resolved(False, number, self.attributes, read_attribute)

    def type(self, number: int) -> Type:
        found: Type = self._resolved(True, number, self.types, read_type)
        return found

    def _resolved(
        self, is_type: bool, number: int, entries: Sequence[_Entry], read: Callable[[str, BytesReader, Tables], Any]
    ) -> Any:
        key = (is_type, number)
        if key in self.found:
            return self.found[key]
        entry = _at(entries, number, "type" if is_type else "attribute")
        if key in self.open or len(self.open) >= MAX_NESTING:
            raise damaged("attributes or types refer to themselves")
        self.open.add(key)
        try:
            if not entry.is_encoded:
                # Text, of dialects that have no bytes of their own: hints for other compilers.
                made = OtherType(entry.dialect) if is_type else Opaque(entry.dialect)
            else:
                made = read(entry.dialect, BytesReader(self.data.data, entry.at, entry.at + entry.size), self.tables)
        finally:
            self.open.discard(key)
        self.found[key] = made
        return made

    # --- operations ----------------------------------------------------------------------------------------------

    def module(self) -> Module:
        """The module that is the only operation of the file."""
        top = self._block(self.operations, [], 0)
        if len(top.operations) != 1 or len(top.operations[0].regions) != 1:
            raise damaged("it holds something else than one module")
        (module,) = top.operations
        functions: dict[str, Function] = {}
        for operation in module.regions[0].operations:
            if operation.name.startswith("sdy."):
                continue  # meshes of devices
            if operation.name != "func":
                raise ImportFailed(f"the module holds a {operation.name}, expected functions")
            function = function_of(operation, self._argument_names(operation))
            if function.name in functions:
                raise damaged(f"it has two functions {function.name!r}")
            functions[function.name] = function
        name = module.attributes.get("sym_name")
        return Module(name if isinstance(name, str) else "main", functions, self.source, module.attributes)

    def _argument_names(self, operation: Operation) -> tuple[str, ...]:
        block = operation.regions[0] if operation.regions else None
        places = () if block is None else self.argument_places.get(id(block), ())
        names = []
        for place in places:
            loc = None if place is None else self._place(place)
            names.append("" if loc is None or loc.name is None or loc.file is not None else loc.name)
        return tuple(names)

    def _place(self, number: int) -> Loc | None:
        try:
            found = self.attribute(number)
        except ImportFailed:
            return None
        return found if isinstance(found, Loc) else None

    def _region(self, reader: BytesReader, scope: list[int], depth: int) -> Block:
        """A region. scope: numbers of the values that it sees; its own are added while it is read."""
        if depth > MAX_NESTING:
            raise ImportFailed(f"regions are nested more than {MAX_NESTING} deep")
        blocks = reader.number()
        if blocks == 0:
            return Block((), (), (), ())
        if blocks != 1:
            raise ImportFailed(f"a region has {blocks} blocks, expected one")
        own = reader.number()
        if own > reader.end - reader.at:
            raise damaged(f"a region of {reader.end - reader.at} bytes is said to make {own} values")
        outside = len(scope)
        scope.extend(range(self.values, self.values + own))
        self.values += own
        try:
            return self._block(reader, scope, depth, outside)
        finally:
            del scope[outside:]

    def _block(self, reader: BytesReader, scope: list[int], depth: int, first: int = 0) -> Block:
        count, has_arguments = reader.flagged()
        if count > reader.end - reader.at:
            raise damaged(f"a block of {reader.end - reader.at} bytes is said to have {count} operations")
        defined = first
        types: list[Type] = []
        places: list[int | None] = []
        if has_arguments:
            for _ in range(reader.count()):
                number, has_place = reader.flagged() if self.version >= _OPTIONAL_PLACES else (reader.number(), True)
                types.append(self.type(number))
                places.append(reader.number() if has_place else None)
            if self.version >= _ORDERS and reader.byte():
                _skip_orders(reader, len(types))
        arguments = _taken(scope, defined, len(types))
        defined += len(types)
        operations: list[Operation] = []
        returned: tuple[int, ...] = ()
        for number in range(count):
            operation = self._operation(reader, scope, defined, depth)
            defined += len(operation.results)
            if operation.name == "return":
                if number != count - 1:
                    raise damaged("a block goes on behind its return")
                returned = operation.operands
            else:
                operations.append(operation)
        block = Block(arguments, tuple(types), tuple(operations), returned)
        if places:
            self.argument_places[id(block)] = tuple(places)
        return block

    def _operation(self, reader: BytesReader, scope: list[int], defined: int, depth: int) -> Operation:
        operator = _at(self.operators, reader.number(), "operator")
        name = operator_name(operator)
        mask = reader.byte()
        place = reader.number()
        attributes: Mapping[str, Attribute] = {}
        if mask & _HAS_ATTRIBUTES:
            found = self.attribute(reader.number())
            if not isinstance(found, dict):
                raise damaged(f"the attributes of {name} are none")
            attributes = found
        if mask & _HAS_PROPERTIES:
            properties = self._properties_of(operator, reader.number())
            attributes = {**properties, **attributes}
        types: list[Type] = []
        if mask & _HAS_RESULTS:
            types = [self.type(reader.number()) for _ in range(reader.count())]
        results = _taken(scope, defined, len(types))
        operands: list[int] = []
        if mask & _HAS_OPERANDS:
            operands = [_at(scope, reader.number(), "value") for _ in range(reader.count())]
        if mask & _HAS_SUCCESSORS:
            raise ImportFailed(f"{name} jumps to another block, which StableHLO has no operations for")
        if mask & _HAS_ORDERS:
            _skip_orders(reader, len(types))
        regions: tuple[Block, ...] = ()
        if mask & _HAS_REGIONS:
            regions = self._regions(reader, scope, depth)
        return Operation(name, tuple(operands), results, tuple(types), attributes, regions, partial(self._place, place))

    def _regions(self, reader: BytesReader, scope: list[int], depth: int) -> tuple[Block, ...]:
        count, is_isolated = reader.flagged()
        if count > reader.end - reader.at:
            raise damaged(f"an operation is said to have {count} regions")
        inner = reader
        if is_isolated and self.version >= _LAZY:
            number, inner = _section(reader)
            if number != _OPERATIONS:
                raise damaged("a region lies in a section of something else")
        seen = [] if is_isolated else scope
        return tuple(self._region(inner, seen, depth + 1) for _ in range(count))

    def _properties_of(self, operator: str, number: int) -> Mapping[str, Attribute]:
        """The attributes of VHLO's operators, in the order of their names. What others have is not needed."""
        dialect, _, bare = operator.partition(".")
        if dialect in ("stablehlo", "mhlo", "chlo"):
            raise ImportFailed(
                f"the file holds operators of dialect {dialect!r}, expected a portable artifact, which has VHLO's",
                hint="write it with jax.export, or as text",
            )
        if dialect != "vhlo":
            return {}
        names = attribute_names(bare)
        if names is None:
            raise ImportFailed(
                f"the file has version {bare!r} of an operator, which hidet does not know",
                hint="write it with an older version of jax, or as text",
            )
        stretch = _at(self.properties, number, "properties")
        reader = BytesReader(stretch.data, stretch.at, stretch.end)
        return {name: self.attribute(reader.number()) for name in names}


def _strings(reader: BytesReader) -> list[str]:
    """Sizes come last first, then the texts, first one first."""
    sizes = [reader.number() for _ in range(reader.count())]
    found = []
    for size in reversed(sizes):
        if size < 1:
            raise damaged("a string has no end")
        found.append(bytes(reader.bytes(size)[: size - 1]).decode(errors="replace"))
    return found


def _properties(reader: BytesReader | None) -> list[BytesReader]:
    return [] if reader is None else [reader.part(reader.number()) for _ in range(reader.count())]


def _skip_orders(reader: BytesReader, results: int) -> None:
    """The order in which readers of values are kept, which means nothing here."""
    for _ in range(reader.count() if results > 1 else 1):
        if results > 1:
            reader.number()
        count, _ = reader.flagged()
        for _ in range(count):
            reader.number()


def _taken(scope: Sequence[int], start: int, count: int) -> tuple[int, ...]:
    if start + count > len(scope):
        raise damaged("a region makes more values than it says")
    return tuple(scope[start : start + count])


def _at(entries: Sequence[Any], number: int, what: str) -> Any:
    if number >= len(entries):
        raise damaged(f"it has no {what} {number}")
    return entries[number]
