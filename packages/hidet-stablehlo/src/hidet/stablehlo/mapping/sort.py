"""Sorting by one key or several, and the best elements of a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hidet import dtypes
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.stablehlo.emitter import StableHloEmitter as Emitter
from hidet.stablehlo.mapping.reduce import counts_along
from hidet.stablehlo.mapping.terms import Term, argument, terms_of, without_canonical_forms

if TYPE_CHECKING:
    from hidet.stablehlo.importer import Body

Key = tuple[int, bool]
"""Which operand is compared, and whether larger ones come first."""


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "chlo.top_k": _best,
        "composite chlo.top_k": _best,
        "custom_call mhlo.topk": _best_of_call,
        "sort": _sort,
    }


def _best(e: Emitter, x: Value, k: Any, **_: Any) -> tuple[Value, Value]:
    values, place = e.emit_all("topk", (x,), {"k": int(k), "axis": -1})
    return values, e.cast(place, dtypes.i32)


def _best_of_call(e: Emitter, x: Value, **attributes: Any) -> tuple[Value, Value]:
    given = attributes.get("mhlo.attributes")
    if not isinstance(given, dict) or not given.get("largest", True) or "k" not in given:
        raise UnsupportedOp(f"{e.operator} mhlo.topk with the attributes {given}")
    return _best(e, x, given["k"])


def _sort(e: Emitter, *xs: Value, regions: Sequence[Body], dimension: Any = -1, **_: Any) -> Any:
    rank = xs[0].tensor.rank
    number = int(dimension)
    axis = e.axis(number + rank if number < 0 else number, rank, "the dimension")
    if len(regions) != 1 or any(x.tensor.shape != xs[0].tensor.shape for x in xs):
        raise ImportFailed(f"{e.operator} of tensors of different shapes")
    terms = terms_of(regions[0])
    keys = None if terms is None or len(terms) != 1 else _keys(without_canonical_forms(terms[0]), len(xs))
    if not keys:
        raise UnsupportedOp(f"{e.operator} by a comparison that is none of keys one after the other")
    if len(xs) == 1 and len(keys) == 1:
        return e.emit_all("sort", xs, {"axis": axis, "descending": keys[0][1]})[0]
    order: Value | None = None
    # The last key decides first: sorting by an earlier one keeps the order of equals.
    for number, is_descending in reversed(keys):
        row = xs[number] if order is None else e.emit("gather", xs[number], order, axis=axis)
        place = e.emit_all("sort", (row,), {"axis": axis, "descending": is_descending})[1]
        order = place if order is None else e.emit("gather", order, place, axis=axis)
    assert order is not None
    made = tuple(
        e.cast(order, x.tensor.dtype) if counts_along(e, x, axis) else e.emit("gather", x, order, axis=axis) for x in xs
    )
    return made if len(made) > 1 else made[0]


def _keys(term: Term, count: int) -> list[Key] | None:
    """a < b, or (a < b or (a == b and <the same of the next key>))."""
    if term[0] == "or" and len(term) == 3:
        for first, rest in ((term[1], term[2]), (term[2], term[1])):
            key = _key(first, count)
            if key is None or rest[0] != "and" or len(rest) != 3:
                continue
            for equal, further in ((rest[1], rest[2]), (rest[2], rest[1])):
                if _is_equal(equal, key[0]):
                    more = _keys(further, count)
                    return None if more is None else [key, *more]
        return None
    found = _key(term, count)
    return None if found is None else [found]


def _key(term: Term, count: int) -> Key | None:
    if term[0] != "compare" or term[1] not in ("LT", "GT"):
        return None
    for number in range(count):
        left, right = argument(2 * number), argument(2 * number + 1)
        if term[-2:] == (left, right):
            return number, term[1] == "GT"
        if term[-2:] == (right, left):
            return number, term[1] == "LT"
    return None


def _is_equal(term: Term, number: int) -> bool:
    pair = {argument(2 * number), argument(2 * number + 1)}
    return term[0] == "compare" and term[1] == "EQ" and set(term[-2:]) == pair
