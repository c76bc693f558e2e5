"""The `@node` class maker: cheap immutable IR nodes with generated `children` and `rebuild`.

A node is a record (`hidet.records`) with identity equality. Fields whose annotation mentions a node class (`Expr`,
`Stmt`) are children, all others are attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, ClassVar, TypeVar, dataclass_transform

from hidet.records import record

_CHILD_KINDS = {
    "Expr": "one",
    "Stmt": "one",
    "Expr | None": "optional",
    "Stmt | None": "optional",
    "tuple[Expr, ...]": "many",
    "tuple[Stmt, ...]": "many",
}

NodeClass = TypeVar("NodeClass", bound=type)


class IRNode:
    """Common ancestor of expressions and statements; see `children` and `rebuild`."""

    __slots__ = ()
    child_fields: ClassVar[tuple[str, ...]] = ()
    attribute_fields: ClassVar[tuple[str, ...]] = ()
    holds_statements: ClassVar[bool] = False
    children: Callable[[], tuple[IRNode, ...]]
    rebuild: Callable[[Callable[[Any], Any]], Any]


@dataclass_transform(frozen_default=True, eq_default=False)
def node(cls: NodeClass) -> NodeClass:
    """Make `cls` an IR node: slots, identity equality, and two generated methods.

    `children()` returns the direct child nodes in field order. `rebuild(fn)` applies `fn` to each child and returns
    the same object when every result `is` the old child, so that unchanged sub-trees stay shared.
    """
    made: Any = record(cls)
    all_fields = fields(made)
    kinds = {f.name: _CHILD_KINDS[str(f.type)] for f in all_fields if str(f.type) in _CHILD_KINDS}
    made.child_fields = tuple(kinds)
    made.holds_statements = any("Stmt" in str(f.type) for f in all_fields if f.name in kinds)
    made.attribute_fields = tuple(f.name for f in all_fields if f.name not in kinds and f.init)
    made.children = _compile("children", "self", _children_body(kinds))
    made.rebuild = _compile("rebuild", "self, fn", _rebuild_body(kinds, [f.name for f in all_fields if f.init]))
    result: NodeClass = made
    return result


def _children_body(kinds: dict[str, str]) -> list[str]:
    if not kinds:
        return ["return ()"]
    if list(kinds.values()) == ["many"]:
        return [f"return self.{next(iter(kinds))}"]
    parts = []
    for name, kind in kinds.items():
        if kind == "one":
            parts.append(f"self.{name},")
        elif kind == "many":
            parts.append(f"*self.{name},")
        else:
            parts.append(f"*(() if self.{name} is None else (self.{name},)),")
    return [f"return ({' '.join(parts)})"]


def _rebuild_body(kinds: dict[str, str], init_names: list[str]) -> list[str]:
    if not kinds:
        return ["return self"]
    lines = []
    for name, kind in kinds.items():
        old = f"self.{name}"
        if kind == "one":
            lines.append(f"new_{name} = fn({old})")
        elif kind == "optional":
            lines.append(f"new_{name} = None if {old} is None else fn({old})")
        else:
            lines.append(f"new_{name} = tuple([fn(x) for x in {old}])")
            lines.append(f"if all([x is y for x, y in zip(new_{name}, {old})]): new_{name} = {old}")
    lines.append(f"if {' and '.join(f'new_{n} is self.{n}' for n in kinds)}: return self")
    arguments = ", ".join(f"new_{n}" if n in kinds else f"self.{n}" for n in init_names)
    lines.append(f"return self.__class__({arguments})")
    return lines


def _compile(name: str, parameters: str, body: list[str]) -> Callable[..., Any]:
    scope: dict[str, Any] = {}
    exec(f"def {name}({parameters}):\n    " + "\n    ".join(body), scope)
    made: Callable[..., Any] = scope[name]
    return made
