"""Scaled dot-product attention on the CPU."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hidet.context import CompileContext
from hidet.cpu.schedules.attention_decode import DECODE_KEYS, decode_kernel, is_decode
from hidet.cpu.schedules.attention_flash import flash_kernel
from hidet.cpu.schedules.attention_kernel import LARGEST_ROW
from hidet.cpu.schedules.attention_pack import is_worth_packing, packing
from hidet.cpu.schedules.attention_sequences import rest_kernel
from hidet.cpu.schedules.attention_tile import TileShape, tile_shape
from hidet.cpu.schedules.cost_attention import attention_seconds
from hidet.cpu.schedules.gemm_program import ProgramBuilder
from hidet.cpu.target import cpu_target
from hidet.errors import ScheduleError
from hidet.ir.expr import Expr
from hidet.schedule.attention_problem import AttentionProblem, attention_problem
from hidet.schedule.device_constants import known_constants
from hidet.schedule.rule import Match, Program, ScheduleRule
from hidet.schedule.space import Knob, Space
from hidet.schedule.task import Task
from hidet.target.constants import DeviceConstants

# Keys scored at a time: scores of 64 queries take 32 KiB of the first-level cache.
KEY_BLOCK = 128
_KEYS = (64, 128, 256, 512)
# How much faster fewer vectors of queries have to be by the cost model.
_CLEARLY = 1.02


@dataclass(frozen=True, slots=True)
class AttentionParams:
    """keys: scored at a time. vectors: of queries in a block. copies_k, copies_v: whether rows of k and v are copied
    first, to follow each other in the type that attention computes in."""

    keys: int
    vectors: int
    copies_k: bool = False
    copies_v: bool = False


class AttentionRule(ScheduleRule[AttentionProblem, AttentionParams]):
    """Schedules attention with or without log-sum-exp, for any strides, masks and numbers of queries."""

    def match(self, task: Task, ctx: CompileContext) -> Match[AttentionProblem] | None:
        """Attention alone, rows of k and v of a known length up to LARGEST_ROW."""
        problem = attention_problem(task)
        longest = max(problem.depth, problem.width)
        if longest > LARGEST_ROW:
            raise ScheduleError(f"rows of k or v have {longest} elements, expected at most {LARGEST_ROW}")
        return Match(task, problem)

    def space(self, match: Match[AttentionProblem], ctx: CompileContext) -> Space[AttentionParams]:
        """Keys that are scored at a time, and, of many queries, how many of them together, and what is copied."""
        problem, default = match.data, self.default(match, ctx)
        keys = Knob("keys", _key_blocks(problem, default.keys), "keys that are scored at a time")
        if is_decode(problem):
            return Space((keys,), lambda keys: AttentionParams(keys, default.vectors))
        return Space(
            (
                keys,
                Knob("vectors", tuple(sorted(_shape(problem, ctx).rows)), "vectors of queries in a block"),
                Knob("copies_k", _copies(problem), "whether k is copied first"),
                Knob("copies_v", _copies(problem), "whether v is copied first"),
            ),
            AttentionParams,
        )

    def default(self, match: Match[AttentionProblem], ctx: CompileContext) -> AttentionParams:
        """Scores that fit into the first-level cache, copies that save more than they cost, and as many queries
        together, or keys of few queries, as the cost model does not expect to be slower than fewer."""
        problem, constants = match.data, cpu_target(ctx).published_constants()
        vectors = _shape(problem, ctx).vectors
        if is_decode(problem):
            blocks = [AttentionParams(keys, vectors) for keys in reversed(_KEYS) if keys <= DECODE_KEYS]
            return min(blocks, key=lambda params: _seconds(problem, params, constants, 1, ctx))
        copies = [
            True in _copies(problem) and is_worth_packing(problem, place, extent)
            for place, extent in ((problem.k, problem.depth), (problem.v, problem.width))
        ]
        chosen = AttentionParams(KEY_BLOCK, vectors, copies[0], copies[1])
        # Fewer vectors waste less of the last block of queries, and what they need stays in the first-level cache.
        least = _seconds(problem, chosen, constants, 1, ctx) / _CLEARLY
        for fewer in sorted(_shape(problem, ctx).rows, reverse=True)[1:]:
            params = replace(chosen, vectors=fewer)
            expected = _seconds(problem, params, constants, 1, ctx)
            if expected < least:
                chosen, least = params, expected
        return chosen

    def predict(self, match: Match[AttentionProblem], params: AttentionParams, ctx: CompileContext) -> float | None:
        """By the model of `cost_attention`."""
        constants = known_constants(ctx)
        assert constants is not None
        return _seconds(match.data, params, constants, ctx.options.threads or constants.cores, ctx)

    def build(self, match: Match[AttentionProblem], params: AttentionParams, ctx: CompileContext) -> Program:
        """Kernels that copy k and v where that pays, and one that does the rest."""
        problem = match.data
        shape = _of_vectors(_shape(problem, ctx), params.vectors)
        program = ProgramBuilder(match.task)
        pointers: dict[str, Expr] = {
            name: program.pointers[place.tensor.operand] for name, place in problem.tensors().items()
        }
        if problem.packed is not None:
            rest, names = rest_kernel(problem, problem.packed)
            program.launch(rest.function, [pointers[name] for name in names], rest.scope, rest.grid, rest.cost)
        if is_decode(problem):
            kernel = decode_kernel(problem, shape.lanes, params.keys)
        else:
            problem = _packed(problem, params, program, pointers)
            kernel = flash_kernel(problem, shape, params.keys)
        program.add(kernel.called)
        program.launch(kernel.function, list(pointers.values()), kernel.scope, kernel.grid, kernel.cost)
        return program.program()


def _copies(problem: AttentionProblem) -> tuple[bool, ...]:
    """Whether rows of k or v may be copied first: packed ones are read where their sequences lie."""
    return (False, True) if problem.packed is None else (False,)


def _key_blocks(problem: AttentionProblem, default: int) -> tuple[int, ...]:
    """Those that are less than all keys, and one that is not: the default, if it is one of them."""
    if not isinstance(problem.keys, int):
        return _KEYS
    enough = [block for block in _KEYS if block >= problem.keys]
    whole = default if default in enough else min(enough, default=0)
    return tuple(block for block in _KEYS if block < problem.keys or block == whole)


def _seconds(
    problem: AttentionProblem, params: AttentionParams, constants: DeviceConstants, threads: int, ctx: CompileContext
) -> float:
    shape = _of_vectors(_shape(problem, ctx), params.vectors)
    copies = (params.copies_k, params.copies_v)
    return attention_seconds(problem, shape, params.keys, copies, constants, threads)


def _of_vectors(shape: TileShape, vectors: int) -> TileShape:
    """The shape for so many vectors of queries at most."""
    return replace(shape, rows={count: rows for count, rows in shape.rows.items() if count <= vectors})


def _shape(problem: AttentionProblem, ctx: CompileContext) -> TileShape:
    """With no more vectors than queries fill: what a block has room for is set up for each of them."""
    cpu = cpu_target(ctx).cpu
    shape = tile_shape(problem.compute, cpu.vector_bits, cpu.vector_registers)
    if not isinstance(problem.rows, int):
        return shape
    filled = -(-problem.rows // shape.lanes)
    return _of_vectors(shape, min((count for count in shape.rows if count >= filled), default=shape.vectors))


def _packed(
    problem: AttentionProblem, params: AttentionParams, program: ProgramBuilder, pointers: dict[str, Expr]
) -> AttentionProblem:
    """The problem on copies of k and v as chosen; launches what copies them and replaces their `pointers`."""
    for name, extent, is_copied in (("k", problem.depth, params.copies_k), ("v", problem.width, params.copies_v)):
        if not is_copied:
            continue
        source = problem.tensors()[name]
        copy = packing(name, problem, source, extent)
        packed = program.scratch(f"{name}_packed", problem.compute, copy.elements)
        program.launch(copy.function, [pointers[name], packed], copy.scope, copy.grid, copy.cost)
        pointers[name] = packed
        problem = replace(problem, k=copy.packed) if name == "k" else replace(problem, v=copy.packed)
    return problem
