"""How statements are shown in messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hidet.ir.stmt import Stmt


def statement_text(stmt: Stmt | None) -> str:
    """The first line of a statement in quotes, with its place in the user's script when that is known."""
    if stmt is None:
        return "the start"
    from hidet.ir.printer import print_stmt

    loc = getattr(stmt, "loc", None)
    lines = print_stmt(stmt).splitlines() or ["pass"]
    return f"`{lines[0]}`" + (f" ({loc})" if loc is not None else "")
