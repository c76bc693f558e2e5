"""Which statements of a kernel use a tile, and what therefore needs no registers of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from hidet.tile import statements as t
from hidet.tile.tensors import RTile


def all_stmts(stmts: tuple[t.TileStmt, ...]) -> Iterator[t.TileStmt]:
    """Statements and those inside of them, in order."""
    for stmt in stmts:
        yield stmt
        if isinstance(stmt, t.Ring):
            yield from (*stmt.loads, *all_stmts(stmt.body))
        elif isinstance(stmt, t.Loop | t.When | t.WhenAny):
            yield from all_stmts(stmt.body)


def register_tiles(stmt: t.TileStmt) -> tuple[RTile, ...]:
    """The register tiles that a statement itself reads or writes; those of its body are not among them."""
    if isinstance(stmt, t.Mma):
        return (stmt.accumulator, *((stmt.a,) if isinstance(stmt.a, RTile) else ()))
    if isinstance(stmt, t.Map):
        return (stmt.target, *stmt.inputs)
    if isinstance(stmt, t.Reduce):
        return (stmt.target, stmt.source)
    if isinstance(stmt, t.Store):
        return (stmt.source,)
    if isinstance(stmt, t.WhenAny):
        return (stmt.tile,)
    return (stmt.target,) if isinstance(stmt, t.Fill | t.Fetch) else ()


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
        if isinstance(stmt, t.Fetch) and stmt.target.columns > 1:
            users = [user for user in all_stmts(body) if stmt.target in register_tiles(user)]
            if all(user is stmt or user in maps for user in users):
                found[stmt.target] = stmt
    return found


def comes_before_ring(following: tuple[t.TileStmt, ...]) -> bool:
    """Whether the next statement that reads shared memory is a ring, which waits for all loads before its own."""
    following = tuple(stmt for stmt in following if not isinstance(stmt, t.Fill | t.Load))
    return bool(following) and isinstance(following[0], t.Ring)
