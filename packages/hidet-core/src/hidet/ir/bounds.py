"""Which elements of arrays a function accesses: the indices of each access, beside the extents that they must be in.

Arrays have a shape. What is reached through pointers and addresses has none, and is left out here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hidet.ir import build
from hidet.ir.expr import Binary, Cast, Expr, Load, Select
from hidet.ir.expr_text import print_expr
from hidet.ir.stmt import Store
from hidet.ir.types import BufferType

Guards = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class IndexBound:
    """One index of an access: it is inside where 0 <= first and last < extent, all i64.

    access: what is accessed, as text. dim: number of the index. first, last: the same but for accesses of several
    neighbours at once.
    """

    access: str
    dim: int
    first: Expr
    last: Expr
    extent: Expr

    @property
    def inside(self) -> Expr:
        """Whether the index is inside."""
        return build.logical_and(self.first >= 0, self.last < self.extent)

    @property
    def message(self) -> str:
        """What to tell of an index outside, with `{}` in place of `last` and of `extent`."""
        return f"{self.access}: index {{}} of dim {self.dim} is outside of its {{}} elements"


def bounds_of(access: Load | Store) -> tuple[IndexBound, ...]:
    """Every index of an access of an array; () for one through a pointer. Of several neighbours of an array with one
    dim the last one counts, too."""
    type_ = access.buffer.type
    if not isinstance(type_, BufferType):
        return ()
    value_lanes = access.lanes if isinstance(access, Load) else access.value.lanes
    lanes = value_lanes if len(access.indices) == 1 and type_.lanes == 1 else 1
    # As the user wrote them: indices of other types are converted.
    written = tuple(index.a if isinstance(index, Cast) else index for index in access.indices)
    text = f"{print_expr(access.buffer)}[{', '.join(map(print_expr, written))}]"
    return tuple(
        IndexBound(text, dim, index, index + (lanes - 1), extent)
        for dim, (index, extent) in enumerate(zip(access.indices, type_.shape, strict=True))
    )


def is_inside(bounds: Sequence[IndexBound]) -> Expr:
    """Whether all indices of an access are inside."""
    return build.logical_and(*(bound.inside for bound in bounds))


def guarded_parts(root: Expr) -> Iterator[tuple[Expr, Guards]]:
    """Every part of an expression, with the conditions under which it is evaluated; inner parts first. A part that
    stands in several places is given once for each set of conditions."""
    # Guards are kept, so that no other one gets their identity.
    seen: dict[tuple[int, ...], Guards] = {}

    def visit(node: Expr, guards: Guards) -> Iterator[tuple[Expr, Guards]]:
        key = (id(node), *map(id, guards))
        if key in seen:
            return
        seen[key] = guards
        for child, own in _children(node):
            yield from visit(child, guards if own is None else (*guards, own))
        yield node, guards

    return visit(root, ())


def _children(node: Expr) -> Iterator[tuple[Expr, Expr | None]]:
    """The parts that an expression is made of, and the condition under which each is evaluated; None for always."""
    if isinstance(node, Select) and node.condition.lanes == 1:
        yield node.condition, None
        yield node.a, node.condition
        yield node.b, build.unary("lnot", node.condition)
    elif isinstance(node, Binary) and node.op in ("land", "lor") and node.lanes == 1:
        yield node.a, None
        yield node.b, node.a if node.op == "land" else build.unary("lnot", node.a)
    else:
        yield from ((child, None) for child in node.children() if isinstance(child, Expr))


def guarded_loads(root: Expr) -> Iterator[tuple[Load, Guards]]:
    """The loads of an expression, with the conditions under which they are made; those in indices first."""
    for node, guards in guarded_parts(root):
        if isinstance(node, Load):
            yield node, guards
