"""`check`: which operators of a model cannot be imported, all at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hidet.errors import UnsupportedOp
from hidet.frontend import Handler
from hidet.plugins.host import load_registry
from hidet.tensorflow._plugin import is_tflite_model
from hidet.tensorflow.compat import has_effect
from hidet.tensorflow.fallback import may_run_in_tensorflow
from hidet.tensorflow.functions import Function
from hidet.tensorflow.loader import LoadedModel, load_model
from hidet.tensorflow.mapping import handlers_of
from hidet.tensorflow.tflite.loader import load_lite
from hidet.tensorflow.tflite.mapping import handlers_of as lite_handlers_of
from hidet.tensorflow.tflite.survey import unknown_operators


@dataclass(frozen=True, slots=True)
class Unsupported:
    """An operator that is not known. nodes: names of the nodes that apply it."""

    operator: str
    nodes: tuple[str, ...]

    def __str__(self) -> str:
        shown = ", ".join(repr(name) for name in self.nodes[:5])
        more = f" and {len(self.nodes) - 5} more" if len(self.nodes) > 5 else ""
        return f"{self.operator}: {shown}{more}"


@dataclass(frozen=True, slots=True)
class Survey:
    """The operators of a model. counts: nodes of each by name, those of a function counted once."""

    counts: Mapping[str, int]
    unsupported: tuple[Unsupported, ...]


def check(model: Any, example_inputs: Any = None, *, signature: str | None = None) -> tuple[Unsupported, ...]:
    """The operators of a model that cannot be imported, with the nodes that apply them; none when all are known.

    Takes what `hidet.tensorflow.compile` takes. Looks into functions, at nodes that results need, and at those that
    write to variables, which no compiled model does.
    """
    if is_tflite_model(model):
        lite = load_lite(model)
        missing = unknown_operators(lite, lite.signature(signature).graph, lite_handlers_of(load_registry()))
        return tuple(Unsupported(operator, names) for operator, names in missing.items())
    loaded = load_model(model, example_inputs, signature=signature)
    return survey(loaded, handlers_of(load_registry())).unsupported


def survey(model: LoadedModel, handlers: Mapping[str, Handler]) -> Survey:
    """All operators of a model. handlers: of `mapping.handlers_of`."""
    counts: Counter[str] = Counter()
    missing: dict[str, list[str]] = {}
    for function in _every_function(model.main):
        needed = [node for node, _ in function.steps]
        names = {node.name for node in needed}
        # A model that writes to a variable is not what it computes alone.
        writing = [node for node in function.nodes.values() if node.name not in names and has_effect(node.op)]
        for node in (*needed, *writing):
            if node.op in function.library:
                continue
            counts[node.op] += 1
            if node.op not in handlers:
                missing.setdefault(node.op, []).append(node.name)
    return Survey(counts, tuple(Unsupported(name, tuple(nodes)) for name, nodes in sorted(missing.items())))


def require_supported(model: LoadedModel, handlers: Mapping[str, Handler], is_strict: bool) -> None:
    """UnsupportedOp with the whole list of what cannot be compiled, or with is_strict False cannot be run at all."""
    missing = survey(model, handlers).unsupported
    if not is_strict:
        missing = tuple(entry for entry in missing if not may_run_in_tensorflow(entry.operator))
    if missing:
        lines = "\n".join(f"  {entry}" for entry in missing)
        raise UnsupportedOp(
            f"{len(missing)} operator{'s' if len(missing) > 1 else ''} of the model cannot be imported:\n{lines}",
            hint="`hidet.tensorflow.check(model)` lists them",
        )


def _every_function(main: Function) -> Iterator[Function]:
    """A function and those that its nodes call, each once."""
    seen = {main.name}
    waiting = [main]
    while waiting:
        function = waiting.pop()
        yield function
        for node in function.nodes.values():
            named = [node.op] if node.op in function.library else []
            for attribute in node.attr.values():
                named += [attribute.func.name] if attribute.HasField("func") else []
                named += [entry.name for entry in attribute.list.func] if attribute.HasField("list") else []
            for name in named:
                if name not in seen:
                    seen.add(name)
                    waiting.append(function.library.function(name))
