"""Which statements of a kernel use a tile, and what therefore needs no registers of its own."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from hidet.gpu.tile import statements as t
from hidet.gpu.tile.tensors import RTile
from hidet.gpu.tile.walk import all_stmts, register_tiles


def stored_maps(body: tuple[t.TileStmt, ...]) -> dict[RTile, t.Map]:
    """Maps of which nothing but the store right behind them takes the result."""
    found: dict[RTile, t.Map] = {}
    for first, second in itertools.pairwise(body):
        if not isinstance(first, t.Map) or not isinstance(second, t.Store) or second.source is not first.target:
            continue
        users = [stmt for stmt in all_stmts(body) if first.target in register_tiles(stmt)]
        if users == [first, second] and first.target not in first.inputs:
            found[first.target] = first
    return found


def parted_fetches(body: tuple[t.TileStmt, ...], stored: Mapping[RTile, t.Map]) -> dict[RTile, t.Fetch]:
    """What stands between the last ring and the maps that alone read it, which are computed where they are stored."""
    last = max((number for number, stmt in enumerate(body) if isinstance(stmt, t.Ring)), default=len(body))
    maps = list(stored.values())
    found: dict[RTile, t.Fetch] = {}
    for stmt in body[last:]:
        if isinstance(stmt, t.Fetch):
            users = [user for user in all_stmts(body) if stmt.target in register_tiles(user)]
            if all(user is stmt or user in maps for user in users):
                found[stmt.target] = stmt
    return found


def comes_before_ring(following: tuple[t.TileStmt, ...]) -> bool:
    """Whether the next statement that reads shared memory is a ring, which waits for all loads before its own."""
    following = tuple(stmt for stmt in following if not isinstance(stmt, t.Fill | t.Load))
    return bool(following) and isinstance(following[0], t.Ring)
