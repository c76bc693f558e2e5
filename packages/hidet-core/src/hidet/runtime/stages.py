"""Stages of a host program: what may be laid out before it runs, and what only after a step has told a size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hidet.dims import Dim, symbols
from hidet.errors import VerifyError
from hidet.runtime.program import (
    ArenaBuffer,
    HostProgram,
    NumberCheck,
    SizeCheck,
    defined_names,
    output_sizes,
    step_sizes,
)


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """Consecutive steps, the last of which tells the symbols that the next stage depends on.

    names: symbols known when it starts, in the order in which they are told. steps: numbers of its steps. buffers,
    sizes, outputs (numbers): what is laid out when it starts, because no earlier stage knew their sizes. size_checks,
    number_checks: what is checked then. resolved: every size that must be evaluated then.
    """

    names: tuple[str, ...]
    steps: range
    buffers: tuple[ArenaBuffer, ...]
    sizes: tuple[tuple[int, Dim], ...]
    outputs: tuple[int, ...]
    size_checks: tuple[SizeCheck, ...]
    number_checks: tuple[NumberCheck, ...]
    resolved: tuple[Dim, ...]


def split_stages(program: HostProgram) -> tuple[Stage, ...]:
    """The stages of a program; one for a program without sizes that depend on data.

    VerifyError where two steps tell one symbol, or a step tells one that the arguments tell: memory would be laid out
    when the last of them has told it, after steps that write there.
    """
    names = [source.name for source in program.symbols]
    stage_of = dict.fromkeys(names, 0)
    bounds, known = [0], [tuple(names)]
    for number, step in enumerate(program.steps):
        told = defined_names(step)
        if told:
            twice = [name for name in told if name in stage_of]
            if twice:
                raise VerifyError(
                    f"step {number} of the program tells size {twice[0]}, which is told before it",
                    hint="compile the model again",
                )
            stage_of.update(dict.fromkeys(told, len(bounds)))
            bounds.append(number + 1)
            names += told
            known.append(tuple(names))
    bounds.append(len(program.steps))

    def stage(sizes: Sequence[Dim]) -> int:
        return max((stage_of[symbol.name] for size in sizes for symbol in symbols(size)), default=0)

    places = [stage(output_sizes(output)) for output in program.outputs]
    for number, output in enumerate(program.outputs):
        if output.same_as is not None:
            places[number] = max(places[number], places[output.same_as])
    stages = []
    for number, told in enumerate(known):
        buffers = tuple(b for b in program.buffers if stage([b.nbytes]) == number)
        sizes = tuple((slot, dim) for slot, dim in program.sizes if stage([dim]) == number)
        outputs = tuple(n for n, place in enumerate(places) if place == number)
        steps = range(bounds[number], bounds[number + 1])
        checks = tuple(c for c in program.size_checks if stage([c.left, c.right]) == number)
        numbers = tuple(c for c in program.number_checks if stage([c.value]) == number)
        resolved = [*(b.nbytes for b in buffers), *(dim for _, dim in sizes)]
        resolved += [size for n in outputs for size in output_sizes(program.outputs[n])]
        resolved += [size for check in checks for size in (check.left, check.right)]
        resolved += [check.value for check in numbers]
        resolved += [size for n in steps for size in step_sizes(program.steps[n])]
        stages.append(Stage(told, steps, buffers, sizes, outputs, checks, numbers, tuple(resolved)))
    return tuple(stages)
