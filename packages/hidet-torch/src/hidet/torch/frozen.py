"""Option freeze: parameters never change again, so that a graph may bake them in.

Their data is known at the first call only, so that is when the graph is compiled. dynamo runs one graph for all modules
of the same code and shapes, so each set of parameters gets a graph of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from hidet.torch import compat
from hidet.torch.runner import Runner

_RECOMPILES = logging.getLogger("hidet.recompile")


class FrozenRunner:
    """Compiles an aten graph for each set of parameters that it is called with.

    parameters: numbers of the arguments that are parameters. compile: makes a runner with those arguments bound to
    tensors; the runner ignores what is passed for them.
    """

    def __init__(self, parameters: Sequence[int], compile: Callable[[Mapping[int, torch.Tensor]], Runner]) -> None:
        compat.mark_boxed(self)
        self._parameters = tuple(parameters)
        self._compile = compile
        self._runners: dict[tuple[int, ...], Runner] = {}
        self._kept: list[list[torch.Tensor]] = []

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        """The results, in the order of the aten graph's outputs."""
        chosen = [args[number] for number in self._parameters]
        key = tuple(map(torch.Tensor.data_ptr, chosen))
        runner = self._runners.get(key)
        if runner is None:
            if self._runners:
                _RECOMPILES.info("compiled again because parameters are other tensors, which option freeze builds in")
            runner = self._runners[key] = self._compile(dict(zip(self._parameters, chosen, strict=True)))
            # An address identifies a parameter only while its memory cannot be used again.
            self._kept.append(chosen)
        return runner(args)
