"""Every schedule generates code for machines other than this one: emitted, verified and assembled, not run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hidet
from hidet import dtypes
from hidet.context import CompileContext, make_context
from hidet.cpu.arch import arch_from_text, host_arch
from hidet.cpu.codegen import emit_module
from hidet.cpu.loader import _LINKER_SYMBOLS, LIBC_SYMBOLS
from hidet.cpu.object_symbols import read_symbols
from hidet.cpu.pool import pool_symbols
from hidet.cpu.target import CpuTarget
from hidet.cpu.toolchain import compile_object
from hidet.dtypes import DType
from hidet.errors import ArtifactError, CompileError, LaunchError, OptionError
from hidet.fusion.fuse import fuse
from hidet.graph import Graph, GraphBuilder, TensorType, Value
from hidet.host.program import build_host_program
from hidet.host.units import compile_units
from hidet.passes.manager import run_graph_passes, run_program_passes
from hidet.schedule.select import ScheduledTask, select_schedules

MACHINES = ("haswell", "sapphirerapids", "neoverse-n1", "apple-m1")
Tensor = Callable[..., Value]
Build = Callable[[GraphBuilder, Tensor], Value]


def _weight(b: GraphBuilder, *shape: int) -> Value:
    return b.input(TensorType(dtypes.f32, shape), is_parameter=True)


# One graph or more for each rule; the rule that has to take it.
GRAPHS: dict[str, tuple[str, Build]] = {
    "chain": ("cpu.elementwise", lambda b, x: b.emit("gelu", b.emit("add", x(7, 33), x(33)))),
    "transposition": ("cpu.elementwise", lambda b, x: b.emit("copy", b.emit("transpose", x(65, 33), perm=(1, 0)))),
    "gather": ("cpu.elementwise", lambda b, x: b.emit("embedding", x(50, 24), x(7, dtype=dtypes.i64))),
    "rows": ("cpu.reduce", lambda b, x: b.emit("sum", x(9, 300), axes=(1,))),
    "columns": ("cpu.reduce", lambda b, x: b.emit("argmax", x(300, 9), axes=(0,))),
    "variance": ("cpu.reduce", lambda b, x: b.emit("var", x(9, 300), axes=(1,))),
    "running sum": ("cpu.scan", lambda b, x: b.emit("cumsum", x(9, 300), axis=1)),
    "softmax": ("cpu.softmax", lambda b, x: b.emit("softmax", x(9, 300))),
    "norm": ("cpu.normalize", lambda b, x: b.emit("layer_norm", x(9, 300), x(300), x(300))),
    "product": (
        "cpu.matmul",
        lambda b, x: b.emit("relu", b.emit("linear", x(40, 70), b.input(x(90, 70).type, is_parameter=True), x(90))),
    ),
    "one row": ("cpu.matmul", lambda b, x: b.emit("linear", x(1, 70), _weight(b, 90, 70))),
    "batched": ("cpu.matmul", lambda b, x: b.emit("matmul", x(3, 40, 70), x(3, 70, 50))),
    "depthwise": ("cpu.depthwise", lambda b, x: b.emit("conv", x(1, 32, 9, 9), _weight(b, 32, 1, 3, 3), groups=32)),
    "convolution": ("cpu.conv", lambda b, x: b.emit("relu", b.emit("conv", x(1, 16, 9, 9), _weight(b, 24, 16, 3, 3)))),
    "transposed": ("cpu.conv", lambda b, x: b.emit("conv_transpose", x(1, 16, 9, 9), _weight(b, 16, 24, 3, 3))),
    "pooling": ("cpu.pool", lambda b, x: b.emit("max_pool", x(1, 24, 9, 9), kernel=(3, 3))),
    "attention": ("cpu.attention", lambda b, x: b.emit("attention", x(1, 2, 40, 32), x(1, 2, 40, 32), x(1, 2, 40, 32))),
    "one query": ("cpu.attention", lambda b, x: b.emit("attention", x(1, 2, 1, 32), x(1, 2, 90, 32), x(1, 2, 90, 32))),
    "scatter": ("fallback", lambda b, x: b.emit("scatter", x(9, 5), x(3, 5, dtype=dtypes.i64), x(3, 5), axis=0)),
    "sorting": ("fallback", lambda b, x: b.emit_all("sort", [x(9, 50)], {})[0]),
}


def _graph(ctx: CompileContext, build: Build, dtype: DType) -> Graph:
    builder = GraphBuilder(ctx.registry.operators)

    def tensor(*shape: int, dtype: DType = dtype) -> Value:
        return builder.input(TensorType(dtype, shape))

    return builder.build([build(builder, tensor)])


def _objects(graph: Graph, ctx: CompileContext) -> tuple[set[str], list[bytes]]:
    """The rules that were used, and the machine code of every module."""
    optimized = run_graph_passes(graph, ctx)
    graphs = [optimized] if optimized.prepare is None else [optimized, optimized.prepare.graph]
    scheduled = [select_schedules(fuse(part, ctx), ctx) for part in graphs]
    hosts = [build_host_program(part, f"part{number}") for number, part in enumerate(scheduled)]
    parts = list(zip(scheduled, hosts, strict=True))
    units = compile_units(parts[:1], parts[1:])
    target = ctx.target
    assert isinstance(target, CpuTarget)
    texts = [(emit_module(run_program_passes(unit.module, ctx), target.cpu), unit.effort) for unit in units.values()]
    rules = {step.rule_name for part in scheduled for step in part.steps if isinstance(step, ScheduledTask)}
    return rules, [compile_object(text, target.cpu, effort) for text, effort in texts]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.thorough(every=6)
def test_schedules_generate_code_for_every_machine(name: str, machine: str) -> None:
    rule, build = GRAPHS[name]
    ctx = replace(make_context("cpu", {"cache": False, "verify": True}), target=CpuTarget(arch_from_text(machine)))
    for dtype in (dtypes.f32, dtypes.bf16) if name in ("chain", "product") else (dtypes.f32,):
        rules, objects = _objects(_graph(ctx, build, dtype), ctx)
        assert rule in rules
        defined = {symbol for data in objects for symbol in read_symbols(data).defined}
        needed = {symbol for data in objects for symbol in read_symbols(data).undefined} - defined
        assert needed <= LIBC_SYMBOLS | _LINKER_SYMBOLS | set(pool_symbols())


def test_every_schedule_of_the_pack_is_covered() -> None:
    registry = make_context("cpu").registry
    pack = {spec.name for spec in registry.schedules.values() if spec.name.startswith("cpu.")}
    assert pack <= {rule for rule, _ in GRAPHS.values()}


def _rectifier() -> Graph:
    return _graph(make_context("cpu"), lambda b, x: b.emit("relu", x(100)), dtypes.f32)


def test_code_for_an_older_machine_of_this_kind_runs_and_loads(tmp_path: Path) -> None:
    if host_arch().isa != "x86_64":
        pytest.skip("names an x86-64 processor")
    compiled = hidet.compile(_rectifier(), target="cpu:x86-64-v2", options={"cache": False})
    compiled.save(tmp_path / "old.hidet")
    loaded = hidet.load(tmp_path / "old.hidet")
    x = np.linspace(-1, 1, 100, dtype=np.float32)
    assert np.array_equal(loaded(x), np.maximum(x, 0))


def test_a_graph_for_a_foreign_machine_is_compiled_and_saved_and_refused_here(tmp_path: Path) -> None:
    """user-walk.md bug 5."""
    foreign = "neoverse-n1" if host_arch().isa == "x86_64" else "haswell"
    compiled = hidet.compile(_rectifier(), target=f"cpu:{foreign}", options={"cache": False})
    x = np.ones(100, np.float32)
    for _ in range(2):
        with pytest.raises(LaunchError, match=f"compiled for cpu:{foreign}, and cannot run here: .*it is code for"):
            compiled(x)
    assert compiled.report().kernels == 1
    compiled.save(tmp_path / "foreign.hidet")
    with pytest.raises(ArtifactError, match="cannot run here: it is code for"):
        hidet.load(tmp_path / "foreign.hidet")


def test_weights_are_packed_where_the_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """user-walk.md bug 5: what only that machine can compute is computed when the graph is loaded there."""
    weights = np.random.default_rng(0).standard_normal((24, 40)).astype(np.float32)
    builder = GraphBuilder(make_context("cpu").registry.operators)
    x = builder.input(TensorType(dtypes.f32, (5, 40)))
    graph = builder.build([builder.emit("linear", x, builder.constant(weights))])
    given = np.random.default_rng(1).standard_normal((5, 40)).astype(np.float32)

    def refuse(*_: object) -> None:
        raise CompileError("not this machine")

    machine = "x86-64-v2" if host_arch().isa == "x86_64" else "aarch64-generic"
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(CpuTarget, "load", refuse)
        compiled = hidet.compile(graph, target=f"cpu:{machine}", options={"cache": False})
        with pytest.raises(LaunchError, match="not this machine"):
            compiled(given)
        assert compiled.bundle.program.prepare is not None
        compiled.save(tmp_path / "later.hidet")
    loaded = hidet.load(tmp_path / "later.hidet")
    for graph_there in (loaded, compiled):
        assert np.allclose(graph_there(given), given @ weights.T, atol=1e-4)
        assert graph_there.bundle.program.prepare is None, "packed when it was loaded"


def test_features_that_this_machine_lacks_are_named() -> None:
    here = host_arch()
    refusal = CpuTarget().refusal(f"{here.triple} future +imagined,{here.features}")
    assert refusal == f"it is code for future, and this {here.name} lacks imagined"
    assert CpuTarget().refusal(CpuTarget().arch) is None


def test_an_unknown_machine_is_named_with_the_nearest_one() -> None:
    with pytest.raises(OptionError, match="CPU 'hasswell' is unknown"):
        make_context("cpu:hasswell")
