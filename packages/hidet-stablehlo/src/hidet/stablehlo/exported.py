"""What `jax.export` serialises: a table (flatbuffers) of a portable artifact, the types of arguments, and the trees in
which they are passed. Read without jax and without flatbuffers, never beyond the end."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from hidet.errors import ImportFailed, UnsupportedOp
from hidet.runtime.signature import Entries, Fixed, Form, GraphInput, GraphOutput, Items

# Numbers of the fields of jax's tables, and of its kinds of trees.
_FUNCTION_NAME, _IN_TREE, _IN_AVALS, _OUT_TREE = 1, 2, 3, 4
_TREE_KIND, _TREE_CHILDREN, _TREE_NAMES = 0, 1, 2
_LEAF, _NONE, _TUPLE, _LIST, _DICT = 0, 1, 2, 3, 4

_MAX_DEPTH = 64
_MAX_ENTRIES = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class Exported:
    """A serialised export.

    module: the portable artifact. shapes: of each argument, as jax spells its extents. kept: which arguments the module
    takes. arguments: forms of the positional arguments, and of those by name. results: the form of what is returned.
    platforms: what the module is for.
    """

    name: str
    module: memoryview
    shapes: tuple[tuple[str, ...], ...]
    kept: tuple[int, ...]
    arguments: tuple[Form, ...]
    named: tuple[tuple[str, Form], ...]
    results: Form
    platforms: tuple[str, ...]


class _Table:
    """A table of flatbuffers at a place in the data."""

    def __init__(self, data: memoryview, at: int) -> None:
        self.data = data
        self.at = at
        self.fields = at - _number(data, at, "<i")

    def field(self, number: int) -> int:
        """Where a field is; 0 for one that is not there."""
        size = _number(self.data, self.fields, "<H")
        place = 4 + 2 * number
        if place + 2 > size:
            return 0
        offset = _number(self.data, self.fields + place, "<H")
        return self.at + offset if offset else 0

    def byte(self, number: int) -> int:
        at = self.field(number)
        return _number(self.data, at, "<B") if at else 0

    def table(self, number: int) -> _Table:
        at = self.field(number)
        if not at:
            raise _damaged()
        return _Table(self.data, at + _number(self.data, at, "<I"))

    def vector(self, number: int) -> tuple[int, int]:
        """Where the elements of a vector begin, and how many there are."""
        at = self.field(number)
        if not at:
            return 0, 0
        start = at + _number(self.data, at, "<I")
        count = _number(self.data, start, "<I")
        if count > len(self.data) - start:
            raise _damaged()
        return start + 4, count

    def bytes(self, number: int) -> memoryview:
        start, count = self.vector(number)
        if start + count > len(self.data):
            raise _damaged()
        return self.data[start : start + count]

    def text(self, number: int) -> str:
        return bytes(self.bytes(number)).decode(errors="replace")

    def numbers(self, number: int, code: str) -> tuple[int, ...]:
        start, count = self.vector(number)
        size = struct.calcsize(code)
        return tuple(_number(self.data, start + n * size, code) for n in range(count))

    def offsets(self, number: int) -> list[int]:
        start, count = self.vector(number)
        if count > _MAX_ENTRIES:
            raise _damaged()
        return [start + 4 * n + _number(self.data, start + 4 * n, "<I") for n in range(count)]

    def tables(self, number: int) -> list[_Table]:
        return [_Table(self.data, at) for at in self.offsets(number)]

    def texts(self, number: int) -> list[str]:
        found = []
        for at in self.offsets(number):
            size = _number(self.data, at, "<I")
            if at + 4 + size > len(self.data):
                raise _damaged()
            found.append(bytes(self.data[at + 4 : at + 4 + size]).decode(errors="replace"))
        return found


def _number(data: memoryview, at: int, code: str) -> int:
    try:
        (value,) = struct.unpack_from(code, data, at) if at >= 0 else (None,)
    except struct.error:
        value = None
    if not isinstance(value, int):
        raise _damaged()
    return value


def _damaged() -> ImportFailed:
    return ImportFailed(
        "the file is damaged: it is no export that jax has serialised", hint="write it again with Exported.serialize"
    )


def is_exported(data: memoryview) -> bool:
    """Whether bytes look like a serialised export: a flatbuffer whose first field is jax's version number."""
    try:
        root = _Table(data, _number(data, 0, "<I"))
        return root.field(_MODULE) > 0 and root.field(_FUNCTION_NAME) > 0 and root.field(_IN_TREE) > 0
    except ImportFailed:
        return False


_PLATFORMS, _MODULE, _KEPT, _UNIQUE_AVALS, _IN_NUMBERS = 9, 13, 15, 19, 22


def read_exported(data: memoryview) -> Exported:
    """The export in bytes that `Exported.serialize` made. The module is a part of `data`."""
    root = _Table(data, _number(data, 0, "<I"))
    numbers = root.numbers(_IN_NUMBERS, "<I")
    avals = root.tables(_IN_AVALS)
    if not avals and numbers:
        unique = root.tables(_UNIQUE_AVALS)
        if max(numbers) >= len(unique):
            raise _damaged()
        avals = [unique[number] for number in numbers]
    counter = iter(range(_MAX_ENTRIES))
    given = _form(root.table(_IN_TREE), lambda: GraphInput(next(counter)), 0)
    results = iter(range(_MAX_ENTRIES))
    returned = _form(root.table(_OUT_TREE), lambda: GraphOutput(next(results)), 0)
    if not isinstance(given, Items) or len(given.items) != 2:
        raise _damaged()
    positional, named = given.items
    if not isinstance(positional, Items) or not isinstance(named, Entries):
        raise _damaged()
    return Exported(
        root.text(_FUNCTION_NAME),
        root.bytes(_MODULE),
        tuple(tuple(aval.texts(1)) for aval in avals),
        root.numbers(_KEPT, "<H"),
        positional.items,
        tuple((str(name), form) for name, form in named.entries),
        returned,
        tuple(root.texts(_PLATFORMS)),
    )


def _form(tree: _Table, leaf: Callable[[], Form], depth: int) -> Form:
    if depth > _MAX_DEPTH:
        raise _damaged()
    kind = tree.byte(_TREE_KIND)
    if kind == _LEAF:
        try:
            return leaf()
        except StopIteration:
            raise _damaged() from None
    if kind == _NONE:
        return Fixed(None)
    children = [_form(child, leaf, depth + 1) for child in tree.tables(_TREE_CHILDREN)]
    if kind in (_TUPLE, _LIST):
        return Items(tuple(children), is_list=kind == _LIST)
    if kind == _DICT:
        names = tree.texts(_TREE_NAMES)
        if len(names) != len(children) or len(set(names)) != len(names):
            raise _damaged()
        return Entries(tuple(zip(names, children, strict=True)))
    raise UnsupportedOp(
        f"an argument or result of the export is a {tree.text(3) or 'tree of a class of its own'}",
        hint="export a function of arrays, tuples, lists and dictionaries",
    )
