"""Pages of the operators: the functions of `hidet.ops`, by family, with the rules that schedule each."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from docs.generate.docstrings import escaped, markdown_of, signature_of
from docs.generate.reference import toctree, write
from hidet.graph.operator import OperatorSpec
from hidet.operators import FAMILIES
from hidet.plugins.host import load_registry
from hidet.plugins.specs import FALLBACK_PRIORITY

OTHERS = "others"
"""The page of functions that are no operators of core: those in the words of hidet 0.6, and those of other wheels."""


def functions_by_family() -> dict[str, list[str]]:
    """The names of `hidet.ops` by the module of core that has the operator."""
    functions = import_module("hidet.api.flow.functions").names()
    families = {spec.name: family for family in FAMILIES for spec in import_module(f"hidet.operators.{family}").SPECS}
    found: dict[str, list[str]] = {family: [] for family in (*FAMILIES, OTHERS)}
    for name in functions:
        found[families.get(name, OTHERS)].append(name)
    return {family: names for family, names in found.items() if names}


def write_operators(folder: Path) -> None:
    """Write a page for each family, and their index, into a folder."""
    known = functions_by_family()
    for family, names in known.items():
        write(folder / f"{family}.md", page_of(family, names))
    write(folder / "index.md", _index(known))


def _title(family: str) -> str:
    return "Further functions" if family == OTHERS else family.replace("_", " ").capitalize()


def _about(family: str) -> str:
    if family == OTHERS:
        return "Functions in the words of hidet 0.6, and operators of wheels beside hidet-core."
    return inspect.getdoc(import_module(f"hidet.operators.{family}")) or ""


def _index(known: Mapping[str, list[str]]) -> str:
    rows = []
    for family, names in known.items():
        links = ", ".join(f"[`{name}`](#hidet.ops.{name})" for name in names)
        rows.append(f"| [{_title(family)}]({family}.md) | {links} |")
    count = sum(map(len, known.values()))
    return "\n".join(
        [
            "# Operators",
            "",
            f"The {count} functions of `hidet.ops`. They take tensors and give tensors; on tensors of",
            "`hidet.symbol` they make a graph ([Tensors and graphs](../../tensors.md)). Which operators of a foreign",
            "model become which of these: [torch](../../torch-coverage.md), [ONNX](../../onnx-coverage.md).",
            "",
            "| family | functions |",
            "|---|---|",
            *rows,
            "",
            *toctree(list(known)),
        ]
    )


def page_of(family: str, names: list[str]) -> str:
    """The page of a family."""
    parts = [f"# {_title(family)}", markdown_of(_about(family))]
    ops = import_module("hidet.ops")
    for name in names:
        function = getattr(ops, name)
        doc = markdown_of(inspect.getdoc(function) or "", set(inspect.signature(function).parameters))
        spec = load_registry().operators.get(name)
        told = "" if spec is None else "\n\n" + _facts(spec)
        fence = "`" * 5
        parts.append(f"{fence}{{py:function}} hidet.ops.{name}{signature_of(function)}\n{doc}{told}\n{fence}")
    return "\n\n".join(parts) + "\n"


def _facts(spec: OperatorSpec) -> str:
    """What kind of operator it is, and which rules are asked for its tasks on which target."""
    said = [f"kind {spec.kind}", *([f"family {spec.family}"] if spec.family else [])]
    for target in load_registry().targets:
        rules = load_registry().schedules_for(spec.name, target)
        names = [f"`{rule.name}`" for rule in rules if rule.priority != FALLBACK_PRIORITY]
        if names:
            said.append(f"on {target} {', '.join(names)}")
    return f"*{escaped('; '.join(said))}*"
