"""Decision trees: every tree of every row goes one level down at a time, all of them at once.

Nodes and leaves are numbered together, and a leaf leads to itself, so that after as many steps as the deepest tree has
levels each place is that of a leaf.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from hidet import dtypes
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.onnx.mapping import Key

_COMPARISONS = ("less_equal", "less", "greater_equal", "greater", "equal", "not_equal")
_MEMBER = 6


def handlers() -> Mapping[Key, Handler]:
    """The handlers of this family."""
    return {("ai.onnx.ml.TreeEnsemble", 5): _tree_ensemble}


@dataclass(frozen=True, slots=True, eq=False)
class _Forest:
    """Arrays with an entry a node, then one a leaf; numpy.

    yes, no: the entry that follows. members: for "is one of" the values, NaN where there are fewer; None without such.
    """

    feature: Any
    split: Any
    mode: Any
    yes: Any
    no: Any
    nan_is_yes: Any
    members: Any | None
    roots: Any
    depth: int


def _forest(e: Emitter, leaves: int, roots: Sequence[int], attributes: Mapping[str, Any], dtype: Any) -> _Forest:
    count = len(attributes["nodes_featureids"])
    modes = attributes["nodes_modes"].reshape(-1).astype(int)
    own = numpy.arange(count, count + leaves)

    def joined(nodes: Any, of_leaf: Any) -> Any:
        return numpy.concatenate([numpy.asarray(nodes), numpy.broadcast_to(of_leaf, leaves)])

    def followed(branch: str) -> Any:
        ids, is_leaf = (numpy.asarray(attributes[f"nodes_{branch}{what}"]) for what in ("nodeids", "leafs"))
        limits = numpy.where(is_leaf != 0, leaves, count)
        if len(ids) != count or len(is_leaf) != count or (ids < 0).any() or (ids >= limits).any():
            raise ImportFailed(f"TreeEnsemble: nodes_{branch}nodeids name nodes or leaves that do not exist")
        return joined(numpy.where(is_leaf != 0, ids + count, ids), own)

    if (modes > _MEMBER).any() or len(modes) != count:
        raise UnsupportedOp(f"TreeEnsemble: nodes_modes {sorted(set(modes.tolist()))} for {count} nodes")
    if not all(0 <= root < count for root in roots):
        raise ImportFailed(f"TreeEnsemble: roots {list(roots)} among {count} nodes")
    yes, no = followed("true"), followed("false")
    tracks = attributes.get("nodes_missing_value_tracks_true") or [0] * count
    return _Forest(
        feature=joined(attributes["nodes_featureids"], 0).astype(numpy.int64),
        split=joined(attributes["nodes_splits"].reshape(-1), 0).astype(dtype),
        mode=joined(modes, 0).astype(numpy.int64),
        yes=yes.astype(numpy.int64),
        no=no.astype(numpy.int64),
        nan_is_yes=joined(tracks, 0).astype(bool),
        members=_members(attributes, modes, count + leaves, dtype),
        roots=numpy.asarray(roots, numpy.int64),
        depth=_depth(yes, no, roots, count),
    )


def _members(attributes: Mapping[str, Any], modes: Any, count: int, dtype: Any) -> Any | None:
    """[entries, largest set]: sets are given one after the other, divided by NaN, for the nodes that have one."""
    places = numpy.flatnonzero(modes == _MEMBER)
    if not len(places):
        return None
    sets: list[list[float]] = [[]]
    for item in attributes["membership_values"].reshape(-1).tolist():
        if item != item:
            sets.append([])
        else:
            sets[-1].append(item)
    if len(sets) < len(places):
        raise ImportFailed(f"TreeEnsemble: {len(sets)} sets of members for {len(places)} nodes that test for one")
    table = numpy.full((count, max(map(len, sets))), numpy.nan, dtype)
    for place, members in zip(places, sets, strict=False):
        table[place, : len(members)] = members
    return table


def _depth(yes: Any, no: Any, roots: Sequence[int], count: int) -> int:
    """Levels of the deepest tree. ImportFailed for nodes that lead in a circle."""
    level, depth = set(roots), 0
    while level:
        depth += 1
        if depth > count:
            raise ImportFailed("TreeEnsemble: nodes lead in a circle")
        level = {int(entry[node]) for node in level for entry in (yes, no)}
        level = {node for node in level if node < count}
    return depth


def _tree_ensemble(
    e: Emitter,
    x: Value,
    *,
    tree_roots: Sequence[int],
    leaf_targetids: Sequence[int],
    leaf_weights: Any,
    n_targets: int = 1,
    aggregate_function: int = 1,
    post_transform: int = 0,
    **nodes: Any,
) -> Value:
    """x[n, features] -> [n, targets]: the weights of the leaves that the trees lead to, summed by target."""
    if post_transform not in (0, 1, 2):
        raise UnsupportedOp(f"TreeEnsemble: post_transform {post_transform}, expected 0 (none), 1 or 2")
    dtype = x.tensor.dtype
    forest = _forest(e, len(leaf_targetids), tree_roots, nodes, dtype.numpy())
    width = x.tensor.shape[1]
    if isinstance(width, int) and forest.feature.max(initial=0) >= width:
        raise ImportFailed(f"TreeEnsemble reads feature {forest.feature.max()} of {width}")
    count = len(nodes["nodes_featureids"])
    place = e.expand(e.array(forest.roots), (x.tensor.shape[0], len(forest.roots)))
    for _ in range(forest.depth):
        place = _next(e, forest, x, place)
    leaf = e.emit("sub", place, e.constant(count, dtypes.i64))
    weights = _entries(e, numpy.asarray(leaf_weights).reshape(-1).astype(dtype.numpy()), leaf)
    targets = _entries(e, numpy.asarray(leaf_targetids, numpy.int64), leaf)
    is_target = e.emit("equal", e.unsqueeze(targets, (2,)), e.array(numpy.arange(n_targets)))
    total = _reduced(e, aggregate_function, e.unsqueeze(weights, (2,)), is_target, len(forest.roots))
    if post_transform == 0:
        return total
    return e.emit("softmax", total, axis=-1) if post_transform == 1 else e.emit("sigmoid", total)


def _entries(e: Emitter, table: Any, place: Value) -> Value:
    """table[place]; places come from the table itself, so all exist."""
    return e.emit("index_select", e.array(table), place, axis=0, wraps=False)


def _next(e: Emitter, forest: _Forest, x: Value, place: Value) -> Value:
    """The entry behind each place."""
    value = e.emit("gather", x, _entries(e, forest.feature, place), axis=1, wraps=False)
    split = _entries(e, forest.split, place)
    mode = None if len(set(forest.mode.tolist())) == 1 else _entries(e, forest.mode, place)
    is_yes: Value | None = None
    for number in sorted(set(forest.mode.tolist())):
        if number == _MEMBER:
            members = _entries(e, forest.members, place)
            found = e.emit("any", e.emit("equal", e.unsqueeze(value, (2,)), members), axes=(2,))
        else:
            found = e.emit(_COMPARISONS[number], value, split)
        if is_yes is None or mode is None:
            is_yes = found
        else:
            is_yes = e.emit("where", e.emit("equal", mode, e.constant(number, dtypes.i64)), found, is_yes)
    assert is_yes is not None
    if forest.nan_is_yes.any():
        is_missing = e.emit("logical_and", e.emit("isnan", value), _entries(e, forest.nan_is_yes, place))
        is_yes = e.emit("logical_or", is_yes, is_missing)
    return e.emit("where", is_yes, _entries(e, forest.yes, place), _entries(e, forest.no, place))


def _reduced(e: Emitter, kind: int, weights: Value, is_target: Value, trees: int) -> Value:
    """Weights [n, trees, 1] reduced over trees for each target."""
    dtype = weights.tensor.dtype
    reductions: dict[int, tuple[float, str]] = {
        0: (0, "sum"),
        1: (0, "sum"),
        2: (dtype.max, "amin"),
        3: (dtype.min, "amax"),
    }
    if kind not in reductions:
        raise UnsupportedOp(f"TreeEnsemble: aggregate_function is {kind}, expected 0 to 3")
    neutral, reduction = reductions[kind]
    total = e.emit(reduction, e.emit("where", is_target, weights, e.constant(neutral, dtype)), axes=(1,))
    return e.emit("div", total, e.constant(trees, dtype)) if kind == 0 else total
