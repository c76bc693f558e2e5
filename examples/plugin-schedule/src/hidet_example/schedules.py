"""The schedule: rows of points in parallel, `columns` centres at a time, so a point's element is loaded once for them.

for i in parallel(m):
    for j in range(0, n rounded down to columns, columns):
        for r in range(k):            points[i, r] is one load for `columns` multiply-adds
    for j in the remaining columns:   one at a time
"""

from __future__ import annotations

from collections.abc import Sequence

from hidet import dtypes
from hidet.context import CompileContext
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function, Module
from hidet.ir.stmt import Assign, Declare, For, Launch, Stmt, Store
from hidet.ir.types import PointerType
from hidet.schedule.rule import Match, Program, ScheduleRule
from hidet.schedule.space import Knob, Space
from hidet.schedule.task import Task


class SquaredDistanceRule(ScheduleRule[None, int]):
    """Schedules squared_distance in float32 with nothing fused to it; other cases go to hidet's fallback loops.

    `match` finds nothing out for `build` (None), and one number may be chosen: how many centres are done at a time.
    """

    def match(self, task: Task, ctx: CompileContext) -> Match[None] | None:
        """Cheap and exact; None means "not mine"."""
        tensors = (*task.inputs, *task.outputs)
        is_mine = task.is_plain and all(tensor.type.dtype is dtypes.f32 for tensor in tensors)
        return Match(task) if is_mine else None

    def space(self, match: Match[None], ctx: CompileContext) -> Space[int]:
        """What a tuner may try; the default is among it."""
        return Space.of_knob(Knob("columns", (1, 2, 4, 8), "centres that are done at a time"))

    def default(self, match: Match[None], ctx: CompileContext) -> int:
        """Good without tuning: four accumulators hide the latency of an addition on current CPUs."""
        return 4

    def build(self, match: Match[None], params: int, ctx: CompileContext) -> Program:
        """Sizes and strides are run-time arguments, so one kernel serves every shape."""
        points, centers = match.task.inputs
        (result,) = match.task.outputs
        sizes: tuple[Dim, ...] = (
            *result.type.shape,
            points.type.shape[1],
            *points.type.element_strides,
            *centers.type.element_strides,
            *result.type.element_strides,
        )
        kernel = build_kernel(params)
        pointers = tuple(Var(name, PointerType(dtypes.f32)) for name in ("points", "centers", "result"))
        arguments = tuple(build.size_var(var.name) for var in kernel.params[len(pointers) :])
        launch = Launch(kernel.name, (arguments[0],), (*pointers, *arguments))
        entry = Function("entry", (*pointers, *arguments), launch, kind="host")
        return Program(Module((kernel, entry), "entry"), arguments=sizes)


def build_kernel(columns: int) -> Function:
    """The kernel of one row of points; parameters are three pointers, then m, n, k and two strides a tensor."""
    points, centers, result = (Var(name, PointerType(dtypes.f32)) for name in ("points", "centers", "result"))
    names = ("m", "n", "k", "points_row", "points_col", "centers_row", "centers_col", "result_row", "result_col")
    sizes = {name: build.size_var(name) for name in names}
    row = build.size_var("i")

    def strides(tensor: str) -> tuple[Expr, Expr]:
        return sizes[f"{tensor}_row"], sizes[f"{tensor}_col"]

    def block(first: Var, width: int) -> Stmt:
        """The distances to centres first … first + width - 1, each in its own accumulator."""
        totals = [Var(f"total{lane}", dtypes.f32) for lane in range(width)]
        r = build.size_var("r")
        point = Var("point", dtypes.f32)
        steps: list[Stmt] = [Declare(point, build.load(points, build.flatten((row, r), strides("points"))))]
        for lane, total in enumerate(totals):
            center = build.load(centers, build.flatten((first + lane, r), strides("centers")))
            difference = Var(f"difference{lane}", dtypes.f32)
            steps += [Declare(difference, point - center), Assign(total, total + difference * difference)]
        return build.seq(
            [
                *(Declare(total, build.const(0.0, dtypes.f32)) for total in totals),
                For(r, build.index(0), sizes["k"], build.seq(steps)),
                *stores(first, totals),
            ]
        )

    def stores(first: Var, totals: Sequence[Var]) -> list[Stmt]:
        places = [build.flatten((row, first + lane), strides("result")) for lane in range(len(totals))]
        return [Store(result, (place,), total) for place, total in zip(places, totals, strict=True)]

    whole = sizes["n"] // columns * columns
    first, rest = build.size_var("j"), build.size_var("j_rest")
    body = [
        For(first, build.index(0), whole, block(first, columns), step=columns),
        For(rest, whole, sizes["n"] - whole, block(rest, 1)),
    ]
    parameters = (points, centers, result, *sizes.values())
    return Function("squared_distances_of_point", parameters, build.seq(body), kind="kernel", grid_vars=(row,))
