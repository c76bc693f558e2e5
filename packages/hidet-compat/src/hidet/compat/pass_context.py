"""`hidet.graph.PassContext`: settings of a block for `hidet.graph.optimize`, as hidet 0.6 has them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from hidet import option
from hidet.compat.warn import warn_unread
from hidet.errors import UnsupportedOp

_HALF = "model.half() or torch.autocast before; hidet.ops.cast in graphs"


class PassContext:
    """For `with`: what is set in the block holds for graphs that are optimised or compiled in it.

    Methods give the context, so that calls can be chained. Those that say nothing to the compiler warn.
    """

    _open: list[PassContext] = []  # noqa: RUF012  # shared by all: a stack

    def __init__(self) -> None:
        self._block = option.context()

    def __enter__(self) -> PassContext:
        self._block.__enter__()
        self._open.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        self._open.remove(self)
        self._block.__exit__(*error)

    @classmethod
    def current(cls) -> PassContext:
        """The innermost context, or one that nothing was set in."""
        return cls._open[-1] if cls._open else cls()

    def save_graph_instrument(self, out_dir: str | os.PathLike[str]) -> PassContext:
        """Write the graph after every pass, and all that is made of it, into a directory."""
        option.dump(out_dir)
        return self

    def profile_pass_instrument(self, log_file: str | None = None, print_stdout: bool = False) -> PassContext:
        """Changes nothing, and warns."""
        warn_unread("profile_pass_instrument", "report of hidet.compile has the seconds of every stage")
        return self

    def set_verbose(self) -> PassContext:
        """Changes nothing, and warns."""
        warn_unread("set_verbose", 'hidet.option.dump("directory") writes what every pass does')
        return self

    def set_precision(self, dtype: str | None = None) -> PassContext:
        """Graphs keep their types; a dtype warns."""
        if dtype is not None:
            warn_unread(f"set_precision({dtype!r})", _HALF)
        return self

    def set_reduce_precision(self, dtype: str | None = None) -> PassContext:
        """Sums of 16-bit floats are kept in f32; another type warns."""
        if dtype not in (None, "float32"):
            warn_unread(f"set_reduce_precision({dtype!r})", "sums of 16-bit floats are kept in f32")
        return self

    def set_mma(self, mma: str) -> PassContext:
        """Matrix units are used wherever they can be; "simt" warns."""
        if mma != "mma":
            warn_unread(f"set_mma({mma!r})", "options tf32_products and tf32_convolutions say what is rounded")
        return self

    def set_parallel_k(self, disabled: bool = False, default: bool = False, **more: Any) -> PassContext:
        """Long sums are split where a model of the device says so; another wish warns."""
        if disabled or more:
            warn_unread("set_parallel_k", "a model of the device decides which sums are split")
        return self

    def set_use_attention(self, flag: bool = True) -> PassContext:
        """Attention is one kernel always; False warns."""
        if not flag:
            warn_unread("set_use_attention(False)", "attention is recognised whatever it is made of")
        return self

    def reduce_cuda_compile_mem(self, enable: bool | None = None) -> PassContext:
        """Weights stay where they are while a graph is compiled; asking for more warns."""
        if enable:
            warn_unread("reduce_cuda_compile_mem(True)", "weights are not copied to compile a graph")
        return self

    def allow_source_graph_removal(self, allow: bool = True) -> PassContext:
        """Changes nothing; True warns."""
        if allow:
            warn_unread("allow_source_graph_removal(True)", "weights are not copied to compile a graph")
        return self

    def add_quantize_rules(self, patterns: Sequence[object]) -> PassContext:
        """UnsupportedOp: what rules change would not be changed."""
        raise UnsupportedOp(
            "PassContext.add_quantize_rules",
            hint="hidet.ops.symmetric_quantize and symmetric_dequantize; docs/plugins.md has rewrites",
        )
