"""Branches whose sides wait for other threads: each side runs as a strand of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hidet.gpu.simulator.lanes import Lanes, merge
from hidet.gpu.simulator.memory import put_value, take_value
from hidet.gpu.simulator.strand import Steps, Strand, Wait
from hidet.gpu.simulator.team import WARP

if TYPE_CHECKING:
    from hidet.gpu.simulator.activation import Activation
    from hidet.gpu.simulator.team import Team
    from hidet.ir.stmt import Stmt


_GROUP = 4 * WARP
"""Threads of a warp group, which matrix units take together."""


@dataclass(slots=True)
class Exits:
    """Threads that left the body of a loop early: out of the loop, or to its next iteration."""

    broken: list[Lanes] = field(default_factory=list)
    continued: list[Lanes] = field(default_factory=list)


def run_sides(
    activation: Activation, sides: Sequence[tuple[Stmt | None, Lanes]], lanes: Lanes, exits: Exits | None
) -> Steps:
    """Run the sides of a branch as strands, and go on when all have come to its end; gives the threads that do.

    Warp groups that take turns are strands of their own.
    """
    scheduler, program = activation.launch.scheduler, activation.launch.program
    strands, branches = [], []
    for side, together in sides:
        if side is None:
            continue
        for part in _by_group(activation.team, together) if program.takes_turns(side) else [together]:
            branch = _branch_off(activation)
            strand = scheduler.add(Strand(branch.stmts(side, part, exits), activation.team, part))
            strand.function, strand.stmt = activation.function.name, side
            strands.append(strand)
            branches.append((branch, part))
    idle = [part for side, part in sides if side is None]
    yield Wait(
        lambda: "behind a branch, for the threads that took it",
        lambda: all(strand.done for strand in strands),
        follows=True,
    )
    _join(activation, branches)
    return merge([*(strand.result for strand in strands), *idle], lanes)


def _by_group(team: Team, lanes: Lanes) -> list[Lanes]:
    """The threads of each warp group, of all blocks of a team."""
    groups = team.thread[lanes.index] // _GROUP
    return [lanes.only(groups == group) for group in np.unique(groups)]


def _branch_off(activation: Activation) -> Activation:
    """An activation as a strand of its own sees it: both sides of a branch may use one variable."""
    branch = type(activation)(activation.launch, activation.team, activation.function)
    branch.values = dict(activation.values)
    branch.unset = {var: unset.copy() for var, unset in activation.unset.items()}
    branch.returned = activation.returned
    return branch


def _join(activation: Activation, branches: Sequence[tuple[Activation, Lanes]]) -> None:
    """Take over what the threads of each strand assigned."""
    for var, before in activation.values.items():
        held = before
        for branch, part in branches:
            value = branch.values[var]
            if value is not before:
                held = put_value(held, take_value(value, part), part, activation.team.size)
        activation.values[var] = held
    for var, unset in list(activation.unset.items()):
        for branch, part in branches:
            unset[part.index] = branch.unset[var][part.index] if var in branch.unset else False
        if not unset.any():
            del activation.unset[var]
