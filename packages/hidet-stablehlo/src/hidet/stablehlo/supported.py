"""`check`: which operators of a module cannot be imported, all at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hidet.errors import UnsupportedOp
from hidet.frontend import Handler
from hidet.loc import Loc
from hidet.stablehlo.program import Block, Module, Operation, place_of


@dataclass(frozen=True, slots=True)
class Unsupported:
    """An operator that is not known. places: where it stands, as far as the file says."""

    operator: str
    places: tuple[str, ...]

    def __str__(self) -> str:
        shown = ", ".join(self.places[:5])
        more = f" and {len(self.places) - 5} more" if len(self.places) > 5 else ""
        return f"{self.operator}: {shown}{more}" if self.places else self.operator


def unsupported_of(module: Module, handlers: Mapping[str, Handler]) -> tuple[Unsupported, ...]:
    """The operators of a module that nothing imports, of functions that main reaches."""
    missing: dict[str, list[str]] = {}
    for operation, around in _every_operation(module, handlers):
        name = table_name(operation)
        if name in handlers or name in ("call", "func") or operation.name == "composite":
            continue
        place = place_of(operation, around)
        missing.setdefault(name, []).append(str(place) if place is not None else "unknown place")
    return tuple(Unsupported(name, tuple(places)) for name, places in sorted(missing.items()))


def require_supported(module: Module, handlers: Mapping[str, Handler]) -> None:
    """UnsupportedOp with the whole list of what cannot be compiled."""
    missing = unsupported_of(module, handlers)
    if missing:
        lines = "\n".join(f"  {entry}" for entry in missing)
        raise UnsupportedOp(
            f"{len(missing)} operator{'s' if len(missing) > 1 else ''} of the model cannot be imported:\n{lines}",
            hint="a plug-in may import them (hidet_handlers): docs/frontends.md",
        )


def table_name(operation: Operation) -> str:
    """What an operation is called in the table of handlers: custom calls and composites by what they name."""
    if operation.name == "custom_call":
        return f"custom_call {operation.attributes.get('call_target_name')}"
    if operation.name == "composite":
        return f"composite {operation.attributes.get('name')}"
    return operation.name


def _every_operation(module: Module, handlers: Mapping[str, Handler]) -> Iterator[tuple[Operation, Loc | None]]:
    """Those of main, and of functions that it calls, with the place of the call; a composite with a handler does not
    call its own."""
    names = ["main"] if "main" in module.functions else list(module.functions)
    waiting: list[tuple[str, Loc | None]] = [(name, None) for name in names]
    seen: set[str] = set()
    while waiting:
        name, around = waiting.pop()
        if name in seen or name not in module.functions:
            continue
        seen.add(name)
        for operation in _within(module.functions[name].block):
            yield operation, around
            called = operation.attributes.get("callee")
            if operation.name == "composite" and table_name(operation) not in handlers:
                called = operation.attributes.get("decomposition")
            text = getattr(called, "name", called)
            if isinstance(text, str):
                waiting.append((text, place_of(operation, around)))


def _within(block: Block) -> Iterator[Operation]:
    waiting = [block]
    while waiting:
        for operation in waiting.pop().operations:
            yield operation
            waiting += operation.regions
