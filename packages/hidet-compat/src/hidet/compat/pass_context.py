"""`hidet.graph.PassContext`: settings of a block for `hidet.graph.optimize`, as hidet 0.6 has them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from hidet import option
from hidet.compat.pass_instruments import (
    GraphPassInstrument,
    ProfileInstrument,
    SaveGraphInstrument,
    VerboseInstrument,
    VisualInstrument,
)
from hidet.compat.rules import QUANTIZE_RULES
from hidet.errors import OptionError


class PassContext:
    """For `with`: what is set, before or in the block, holds for graphs that are optimised or compiled in it.

    Methods give the context, so that calls can be chained. Those that say nothing to the compiler warn.
    """

    _open: list[PassContext] = []  # noqa: RUF012  # shared by all: a stack

    def __init__(self) -> None:
        self._block = option.context()
        self._chosen: dict[str, object] = {}
        self.instruments: list[GraphPassInstrument] = []
        self._rules: list[object] = []

    def __enter__(self) -> PassContext:
        self._block.__enter__()
        self._open.append(self)
        for name, value in self._chosen.items():
            _ask(name, value)
        return self

    def __exit__(self, *error: object) -> None:
        self._open.remove(self)
        self._block.__exit__(*error)

    @classmethod
    def current(cls) -> PassContext:
        """The innermost context, or one that nothing was set in."""
        return cls._open[-1] if cls._open else cls()

    def save_graph_instrument(self, out_dir: str | os.PathLike[str]) -> PassContext:
        """Write the graph after every pass that changes it into a directory: text, and JSON for the viewer Netron."""
        return self._see(SaveGraphInstrument(out_dir))

    def profile_pass_instrument(self, log_file: str | None = None, print_stdout: bool = False) -> PassContext:
        """Write the time of every pass into a file, or print it."""
        return self._see(ProfileInstrument(log_file, print_stdout))

    def set_verbose(self) -> PassContext:
        """Print what every pass makes of the number of operators."""
        return self._see(VerboseInstrument())

    def set_precision(self, dtype: str | None = None) -> PassContext:
        """Compute graphs of f32 in "float16" or "bfloat16" where that is safe; None and "float32" leave them as they
        are. "int8": weights are kept as integers of 8 bits, and all else is as for "float16"."""
        if dtype == "int8":
            patterns = import_module("hidet.graph.quant").default_patterns()
            return self.add_quantize_rules(patterns)._set("compat.precision", "float16")
        return self._set("compat.precision", dtype)

    def set_reduce_precision(self, dtype: str | None = None) -> PassContext:
        """What products of f16 are summed in on matrix units: "float16", or f32."""
        if dtype not in (None, "float16", "float32"):
            raise OptionError(f"set_reduce_precision takes 'float16', 'float32' or None, got {dtype!r}")
        return self._set("cuda.fp16_accumulation", dtype == "float16")

    def set_mma(self, mma: str) -> PassContext:
        """Whether matrix units multiply: "mma" and "wmma", or not: "simt"."""
        if mma not in ("simt", "wmma", "mma"):
            raise OptionError(f"set_mma takes 'simt', 'wmma' or 'mma', got {mma!r}")
        return self._set("cuda.matrix_units", mma != "simt")

    def set_parallel_k(
        self, disabled: bool = False, default: bool = False, search: bool = False, nparts: int | None = None
    ) -> PassContext:
        """Into how many parts long sums are split: none, as a model of the device says, as measured, or `nparts`.
        OptionError unless one of them is asked for."""
        wishes = {"disabled": disabled, "default": default, "search": search, "nparts": nparts is not None}
        chosen = [name for name, is_chosen in wishes.items() if is_chosen]
        if len(chosen) != 1:
            raise OptionError(f"set_parallel_k takes one of {', '.join(wishes)}, got {', '.join(chosen) or 'none'}")
        return self._set("parallel_k", nparts if nparts is not None else chosen[0])

    def set_use_attention(self, flag: bool = True) -> PassContext:
        """Whether attention is computed by one kernel, or by products and a softmax."""
        return self._set("compat.attention", bool(flag))

    def reduce_cuda_compile_mem(self, enable: bool | None = None) -> PassContext:
        """Changes nothing: weights stay where they are while a graph is compiled, whatever is asked for."""
        return self

    def allow_source_graph_removal(self, allow: bool = True) -> PassContext:
        """Changes nothing: weights are not copied to compile a graph, so that removing them would save nothing."""
        return self

    def add_quantize_rules(self, patterns: Sequence[object]) -> PassContext:
        """Apply rules, such as `hidet.graph.quant.default_patterns()`, to graphs of the block alone."""
        self._rules += patterns
        QUANTIZE_RULES.append(tuple(self._rules))
        return self._set("compat.quantize", len(QUANTIZE_RULES) - 1)

    def _see(self, instrument: GraphPassInstrument) -> PassContext:
        self.instruments.append(instrument)
        return self

    def _set(self, name: str, value: Any) -> PassContext:
        """An option that holds in the block."""
        self._chosen[name] = value
        if self in self._open:
            _ask(name, value)
        return self


def is_watching() -> bool:
    """Whether an instrument is told of passes."""
    is_drawn = option.remembered("debug_dump_graph_visual", False)
    return bool(is_drawn) or any(context.instruments for context in PassContext._open)


def pass_done(name: str, before: object, after: object, seconds: float) -> None:
    """Tell the instruments of the contexts that are open that a pass has run."""
    if option.remembered("debug_dump_graph_visual", False):
        VisualInstrument(Path(option.get_cache_dir() or ".") / "graphs").told(name, before, after, seconds)
    for context in PassContext._open:
        for instrument in context.instruments:
            instrument.told(name, before, after, seconds)


def _ask(name: str, value: object) -> None:
    """Set an option where a wheel has it: without a target for GPUs there are no matrix units to speak of."""
    if option.is_option_exist(name):
        option.set_option(name, value)
