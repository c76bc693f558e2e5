"""Scaled dot-product attention on the CPU."""

from __future__ import annotations

from dataclasses import replace

from hidet.context import CompileContext
from hidet.cpu.schedules.attention_decode import decode_kernel, is_decode
from hidet.cpu.schedules.attention_flash import flash_kernel
from hidet.cpu.schedules.attention_kernel import LARGEST_ROW
from hidet.cpu.schedules.attention_pack import is_worth_packing, packing
from hidet.cpu.schedules.attention_tile import tile_shape
from hidet.cpu.schedules.gemm_program import ProgramBuilder
from hidet.cpu.target import cpu_target
from hidet.errors import ScheduleError
from hidet.ir.expr import Expr
from hidet.schedule.attention_problem import AttentionProblem, attention_problem
from hidet.schedule.rule import Match, Program, ScheduleRule
from hidet.schedule.space import Knob, Space
from hidet.schedule.task import Task

# Keys scored at a time: scores of 64 queries take 32 KiB of the first-level cache.
KEY_BLOCK = 128


class AttentionRule(ScheduleRule[AttentionProblem, int]):
    """Schedules attention with or without log-sum-exp, for any strides, masks and numbers of queries."""

    def match(self, task: Task, ctx: CompileContext) -> Match[AttentionProblem] | None:
        """Attention alone, rows of k and v of a known length up to LARGEST_ROW."""
        problem = attention_problem(task)
        longest = max(problem.depth, problem.width)
        if longest > LARGEST_ROW:
            raise ScheduleError(f"rows of k or v have {longest} elements, expected at most {LARGEST_ROW}")
        return Match(task, problem)

    def space(self, match: Match[AttentionProblem], ctx: CompileContext) -> Space[int]:
        """How many keys are scored at a time."""
        return Space.of_knob(Knob("key_block", (64, 128, 256, 512), "keys that are scored at a time"))

    def default(self, match: Match[AttentionProblem], ctx: CompileContext) -> int:
        """Scores that fit into the first-level cache."""
        return KEY_BLOCK

    def build(self, match: Match[AttentionProblem], params: int, ctx: CompileContext) -> Program:
        """Kernels that copy k and v where that pays, and one that does the rest."""
        problem = match.data
        cpu = cpu_target(ctx).cpu
        shape = tile_shape(problem.compute, cpu.vector_bits, cpu.vector_registers)
        program = ProgramBuilder(match.task)
        pointers: dict[str, Expr] = {
            name: program.pointers[place.tensor.operand] for name, place in problem.tensors().items()
        }
        if is_decode(problem):
            kernel = decode_kernel(problem, shape.lanes)
        else:
            problem = _packed(problem, program, pointers)
            kernel = flash_kernel(problem, shape, params)
        program.add(kernel.called)
        program.launch(kernel.function, list(pointers.values()), kernel.scope, kernel.grid, kernel.cost)
        return program.program()


def _packed(problem: AttentionProblem, program: ProgramBuilder, pointers: dict[str, Expr]) -> AttentionProblem:
    """The problem on copies of k and v where those pay; launches what copies them and replaces their `pointers`."""
    for name, extent in (("k", problem.depth), ("v", problem.width)):
        source = problem.tensors()[name]
        if not is_worth_packing(problem, source, extent):
            continue
        copy = packing(name, problem, source, extent)
        packed = program.scratch(f"{name}_packed", problem.compute, copy.elements)
        program.launch(copy.function, [pointers[name], packed], copy.scope, copy.grid, copy.cost)
        pointers[name] = packed
        problem = replace(problem, k=copy.packed) if name == "k" else replace(problem, v=copy.packed)
    return problem
