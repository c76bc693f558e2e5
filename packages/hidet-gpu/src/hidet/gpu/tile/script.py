"""Kernels in tiles that users write: `hidet.tile.kernel`.

from hidet.lang import f16, f32
from hidet.tile import cdiv, grid, kernel, load, map, mma, pipeline, register, shared, store

m, n, k = (hidet.dims.symbol(name) for name in "mnk")

@kernel(warps=(2, 2))
def matmul(a: f16[m, k], b: f16[k, n], c: f16[m, n]):
    column, row = grid(cdiv(n, 64), cdiv(m, 64))
    total: f32[64, 64] @ register = fill(0.0)
    for step in pipeline(cdiv(k, 32), stages=3):
        tile_a: f16[64, 32] @ shared = load(a, row * 64, step * 32)
        tile_b: f16[32, 64] @ shared = load(b, step * 32, column * 64)
        total += mma(tile_a, tile_b)
    result: f16[64, 64] @ register = map(lambda x: max(x, 0.0), total)
    store(c, result, row * 64, column * 64)

matmul(a, b, c)  # tensors on a GPU
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from hidet import dtypes
from hidet.compiler.modules import build_ir_module
from hidet.context import make_context
from hidet.errors import PluginError, ScheduleError, ScriptError
from hidet.gpu.tile.kernel import TileKernel
from hidet.gpu.tile.lowered import LoweredTiles
from hidet.gpu.tile.script_parser import ScriptKernelParser, possible_align
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Bitcast, Const, Expr, Var
from hidet.ir.func import SIZES, Function, Module
from hidet.ir.printer import print_module
from hidet.ir.types import BufferType
from hidet.ir.verify import verify_module
from hidet.lang.module import LAUNCH
from hidet.lang.signature import Signature
from hidet.lang.source import place_of, read_source
from hidet.lang.types import TensorKind
from hidet.loc import Loc
from hidet.passes.dump import dump
from hidet.plugins.host import load_registry

Step = Literal["tile", "thread", "target"]


@dataclass(frozen=True, eq=False)
class TileScript:
    """A kernel in tiles and its launch; made by `hidet.tile.kernel`.

    kernel: for tensors that start, and whose rows start, at multiples of 16 bytes where their sizes let them. other:
    the same for all others; None where there is no difference. signature: what the host passes. matrices: the tensors
    that the kernel reads and writes box by box. lowering: what its user chose, None for what fits the target.
    """

    kernel: TileKernel
    other: TileKernel | None
    signature: Signature
    matrices: Mapping[str, TensorKind]
    lowering: str | None
    loc: Loc

    @property
    def name(self) -> str:
        """That of the Python function."""
        return self.kernel.name

    def __call__(self, /, *arguments: Any, **keywords: Any) -> Any:
        """Compile the kernel for the device of a GPU, once, and launch it in the stream in which the tensors' library
        works now; the call does not wait for it. See `hidet.runtime.module.CompiledFunction`."""
        return self.build()(*arguments, **keywords)

    def build(self, target: str = "auto", options: Mapping[str, Any] | None = None) -> Any:
        """The kernel compiled, as `hidet.lang.ScriptModule.build` does: its source, what it takes of the device, a
        callable. The same one at each call without options.

        target: "auto" is the first one of a GPU; "cuda:sm_90a" makes code for that architecture, which can be looked at
        on machines without a GPU. ScheduleError for a kernel that the target cannot lower.
        """
        return _built(self, target) if not options else _build(self, target, options)

    def ir_module(self, target: str = "auto") -> Module:
        """The kernel as thread IR for a target, and a function `launch` of the host, verified; it runs on numpy arrays
        by `hidet.ir.interpret.run_module`, with the sizes behind the other arguments.

        A target with its architecture ("cuda:sm_80") needs no GPU.
        """
        lower = getattr(make_context(_named(target)).target, "lower_tiles", None)
        if lower is None:
            raise PluginError(
                f"target {target!r} has no lowering of kernels in tiles, which {self.name} is one of",
                hint="build for a target that implements hidet.gpu.tile.lowered.TileTarget",
            )
        try:
            lowered = lower(self.kernel, self.lowering)
            # What TMA cannot bring is left to the target.
            other = None if self.other is None else lower(self.other, None)
        except ScheduleError as error:
            error.loc = error.loc or self.loc
            raise
        functions = [lowered.function, *(() if other is None else (other.function,))]
        launch = self._launcher(lowered, other)
        module = Module((*functions, launch), launch.name)
        verify_module(module)
        return module

    def source(self, step: Step = "target", target: str = "auto") -> str:
        """The kernel as text: in tiles ("tile"), as thread IR for a target ("thread"), or as the target's compiler gets
        it ("target": CUDA C++)."""
        if step == "tile":
            return self.kernel.text()
        if step == "thread":
            return print_module(self.ir_module(target))
        text: str = self.build(target).source()
        return text

    def __repr__(self) -> str:
        given = zip(self.signature.params, self.signature.kinds, strict=True)
        return f"<kernel in tiles {self.name}({', '.join(f'{name}: {kind}' for name, kind in given)})>"

    # --- the host's side ---------------------------------------------------------------------------------------------

    def _launcher(self, lowered: LoweredTiles, other: LoweredTiles | None) -> Function:
        """The host function that launches the kernel, or the one for tensors without the alignment."""
        signature = self.signature
        params = (*signature.params.values(), *signature.symbols.values())
        given = [_decayed(var) for var in params]
        stmt: s.Stmt = lowered.launch(dict(zip(lowered.params, given, strict=True)))
        if other is not None:
            slow = other.launch(dict(zip(other.params, given, strict=True)))
            tests = self._alignment()
            tests += self._have_elements() if lowered.needs_elements else []
            stmt = s.If(build.logical_and(*tests), stmt, slow)
        attributes = ((SIZES, tuple(symbol.name for symbol in signature.symbols)),) if signature.symbols else ()
        name = LAUNCH if self.name != LAUNCH else f"{LAUNCH}_{self.name}"
        return Function(name, params, stmt, "host", attributes=attributes)

    def _alignment(self) -> list[Expr]:
        """What has to hold of the tensors of a call so that the kernel for aligned ones may run."""
        tests: list[Expr] = []
        for name, kind in self.matrices.items():
            columns, nbytes = self._extents(name)[-1], kind.dtype.nbytes
            align = possible_align(columns, kind.dtype)
            if align == nbytes:
                continue
            address = Bitcast(_decayed(self.signature.params[name]), dtypes.i64)
            tests.append(build.equal(build.binary("and", address, align - 1), 0))
            if not isinstance(columns, Const):
                tests.append(build.equal(columns % (align // nbytes), 0))
        return tests

    def _have_elements(self) -> list[Expr]:
        """Whether no matrix is empty."""
        found = (extent for name in self.matrices for extent in self._extents(name))
        return [extent > 0 for extent in dict.fromkeys(found) if not isinstance(extent, Const)]

    def _extents(self, name: str) -> tuple[Expr, ...]:
        type_ = self.signature.params[name].type
        assert isinstance(type_, BufferType)
        return type_.shape


def kernel(
    function: object = None, /, *, warps: tuple[int, int] = (0, 0), lowering: str | None = None
) -> Callable[[Callable[..., Any]], TileScript]:
    """`@kernel(warps=(rows, columns))`: the kernel in tiles that a Python function is, which is read, never executed.

    Parameters are tensors (`f16[m, k]`, with numbers or symbols as extents), pointers (`~f16`) and numbers. The words
    of the body are those of `hidet.tile`; what Python knows where the function stands is computed now.

    warps: how those of a block share the rows and columns of register tiles; each computes an equal part.
    lowering: how the target computes it, by a name that the target has ("mma", "wgmma", "tma", "warp-specialized" of
    CUDA); None for the fastest that kernel and device are made for.

    ScriptError with file, line and column for what is no kernel, tiles that do not fit each other, and tiles that are
    read before they are written.
    """
    if function is not None or not _are_warps(warps):
        raise ScriptError(
            "a kernel in tiles says how many warps share the rows and columns of its tiles",
            loc=place_of(sys._getframe(1)),
            hint="write @kernel(warps=(2, 2))",
        )
    frame = sys._getframe(1)

    def make(function: Callable[..., Any]) -> TileScript:
        source = read_source(function, frame)

        def parsed(is_aligned: bool) -> tuple[ScriptKernelParser, TileKernel]:
            parser = ScriptKernelParser(source, function, frame, is_aligned)
            return parser, parser.read(warps)

        parser, tiles = parsed(True)
        made = TileScript(tiles, None, parser.signature, parser.matrices, lowering, source.place(source.tree))
        if not made._alignment():
            return made
        other = parsed(False)[1]
        return replace(made, other=replace(other, name=f"{other.name}_unaligned"))

    return make


def _are_warps(warps: Sequence[Any]) -> bool:
    is_pair = isinstance(warps, tuple | list) and len(warps) == 2
    return is_pair and all(isinstance(count, int) and count > 0 for count in warps)


def _decayed(var: Var) -> Expr:
    """A tensor as the pointer to its first element."""
    return build.address(var, *(0 for _ in var.type.shape)) if isinstance(var.type, BufferType) else var


def _named(target: str) -> str:
    return load_registry().target_of_kind("gpu") if target == "auto" else target


@functools.lru_cache(maxsize=1024)
def _built(script: TileScript, target: str) -> Any:
    return _build(script, target, None)


def _build(script: TileScript, target: str, options: Mapping[str, Any] | None) -> Any:
    ctx = make_context(_named(target), options)
    for tiles in (script.kernel, script.other):
        if tiles is not None:
            dump(ctx, f"{tiles.name}{tiles.ending}", tiles.text)
    return build_ir_module(script.ir_module(target), _named(target), options)
