"""What the statements of a kernel in tiles consist of and mention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hidet.gpu.tile import statements as t
from hidet.gpu.tile.tensors import RTile, Source, STile


def all_stmts(stmts: Sequence[t.TileStmt]) -> Iterator[t.TileStmt]:
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


def shared_tiles(stmt: t.TileStmt) -> tuple[STile, ...]:
    """The tiles in shared memory that a statement itself reads or writes; the loads of a ring are statements."""
    if isinstance(stmt, t.Mma):
        return (*((stmt.a,) if isinstance(stmt.a, STile) else ()), stmt.b)
    return (stmt.target,) if isinstance(stmt, t.Load) else ()


def tiles_of(stmts: Sequence[t.TileStmt]) -> tuple[STile | RTile, ...]:
    """All tiles that statements mention, each once, in the order of their first use."""
    found: dict[STile | RTile, None] = {}
    for stmt in all_stmts(stmts):
        found.update(dict.fromkeys((*shared_tiles(stmt), *register_tiles(stmt))))
    return tuple(found)


def sources_of(stmts: Sequence[t.TileStmt]) -> tuple[Source, ...]:
    """All matrices that statements read or write, each once, in the order of their first use."""
    found: dict[Source, None] = {}
    for stmt in all_stmts(stmts):
        if isinstance(stmt, t.Load | t.Fetch):
            found[stmt.source] = None
        elif isinstance(stmt, t.Store):
            found[stmt.target] = None
    return tuple(found)
