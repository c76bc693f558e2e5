"""Decisions as the project of a wheel: Python that people review, and a plug-in that follows it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from hidet.errors import OptionError
from hidet.tuning.distil import Distilled
from hidet.tuning.distil_choice import Decision, If, Tree

_PYPROJECT = """\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "0.1.0"
description = "Choices of schedules for hidet, distilled from measurements"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["hidet-tune>=0.1,<0.2"]

[project.entry-points."hidet.plugins"]
{package} = "{package}._plugin"

[tool.hatch.build.targets.wheel]
packages = ["src/{package}"]
"""

_PLUGIN = '''\
"""Plug-in of hidet: chooses parameters of schedules as `decisions.py` says."""

HIDET_API = 1


def hidet_graph_facts():
    """Nothing: the decisions are of this version."""
    return ""


def hidet_choose_schedule(task, candidates, ctx):
    """The parameters that the decision for a task names; None leaves them to the rule."""
    from hidet.tuning.distil_choice import choose

    from {package}.decisions import DECISIONS

    return choose(DECISIONS, task, candidates, ctx)
'''

_README = """\
# {name}

Choices of schedules for hidet, distilled by `hidet tune distil` from {tasks} measured tasks. Once this wheel is
installed, compilations take them without a store. `src/{package}/decisions.py` has them to read and to edit.

A decision is for one schedule rule, its version, one machine with a number of threads, and sizes at most twice as small
or large as those that were measured. Elsewhere the rule chooses by itself; so it does where its space does not offer
the parameters, and a store that has measured a task comes first.

| rule | tensors | tasks | as measured | gain measured | gain kept | loss | loss of tasks left out |
|---|---|---|---|---|---|---|---|
{rows}

Gains are over the rules' own choices, losses over what was measured to be the best; both are geometric means. The last
column is by trees that were made without the tasks they are held against.
"""


def write_pack(found: Sequence[Distilled], folder: Path) -> None:
    """Write the project of a wheel that is named as its folder.

    OptionError for a folder that is not empty, for a name that no Python package can have, and for no decisions.
    """
    name = folder.resolve().name
    package = re.sub(r"[-.]", "_", name)
    if not package.isidentifier():
        raise OptionError(f"the folder is called {name!r}, which no package can be", hint="as in -o my_pack")
    if folder.exists() and any(folder.iterdir()):
        raise OptionError(f"the folder {folder} is not empty", hint="name a new one, or delete it")
    if not found:
        raise OptionError(
            "nothing in the store is faster than what rules choose by themselves", hint="tune more models: hidet tune"
        )
    source = folder / "src" / package
    source.mkdir(parents=True)
    tasks, rows = sum(each.tasks for each in found), "\n".join(map(_row, found))
    texts = {
        folder / "pyproject.toml": _PYPROJECT.format(name=package.replace("_", "-"), package=package),
        folder / "README.md": _README.format(name=name, package=package, tasks=tasks, rows=rows),
        source / "__init__.py": f'"""Choices of schedules: `{package}.decisions`."""\n',
        source / "_plugin.py": _PLUGIN.format(package=package),
        source / "decisions.py": decisions_text(found),
    }
    for file, text in texts.items():
        file.write_text(text, encoding="utf-8")


def _row(each: Distilled) -> str:
    decision = each.decision
    gains = f"{each.gain:.2f} | {each.kept:.2f}"
    losses = f"{each.loss:.1%} | {each.left_out:.1%}"
    return f"| {decision.rule} | `{decision.tensors}` | {each.tasks} | {each.reproduced} | {gains} | {losses} |"


def decisions_text(found: Sequence[Distilled]) -> str:
    """Decisions as a Python module."""
    lines = ['"""Which parameters schedules have: decision trees over the sizes of tasks."""', ""]
    names = "Decision, If" if any(isinstance(each.decision.tree, If) for each in found) else "Decision"
    lines += [f"from hidet.tuning.distil_choice import {names}", "", "DECISIONS = ("]
    for each in found:
        lines += _decision_lines(each, each.decision)
    return "\n".join([*lines, ")", ""])


def _decision_lines(each: Distilled, decision: Decision) -> list[str]:
    examples = ", ".join(" ".join(example.split()) for example in each.examples)
    sizes = ", ".join(f"{name!r}: {limits}" for name, limits in decision.sizes.items())
    return [
        f"    # {each.tasks} tasks, such as {examples}",
        f"    # {each.reproduced} get what was measured to be the best; {each.kept:.2f} times as fast as by default.",
        "    Decision(",
        *(f"        {name}={getattr(decision, name)!r}," for name in ("rule", "version", "arch", "tensors")),
        f"        sizes={{{sizes}}},",
        f"        tree={_tree_text(decision.tree, 2)},",
        "    ),",
    ]


def _tree_text(tree: Tree, level: int) -> str:
    if not isinstance(tree, If):
        return repr(tree)
    inner = "    " * (level + 1)
    parts = [
        f"{inner}{tree.size!r},",
        f"{inner}at_most={tree.at_most},",
        f"{inner}then={_tree_text(tree.then, level + 1)},",
        f"{inner}otherwise={_tree_text(tree.otherwise, level + 1)},",
    ]
    return "\n".join(["If(", *parts, "    " * level + ")"])
