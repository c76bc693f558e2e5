"""What may be chosen about products and convolutions: every point is a program of its own."""

from __future__ import annotations

from typing import Any

import pytest

from hidet.context import make_context
from hidet.fusion.fuse import fuse
from hidet.graph.parser import parse_graph
from hidet.ir.structural import structural_hash
from hidet.passes.manager import run_graph_passes
from hidet.schedule.claims import Claim, claims
from hidet.schedule.shortlist import space_of


def conv(channels: int, taps: int) -> str:
    return (
        f"graph g(%x: f32[1, 9, 9, {channels}], %w: f32[40, {channels}, {taps}, {taps}]):\n"
        f"  %0: f32[1, {channels}, 9, 9] = transpose(%x, perm=[0, 3, 1, 2])\n"
        f"  %1: f32[1, 40, 9, 9] = conv(%0, %w, padding={taps // 2})\n  return %1\n"
    )


def product(inputs: str, operation: str, result: str) -> str:
    return f"graph g({inputs}):\n  %0: {result} = {operation}\n  return %0\n"


CASES = {
    "steps": product("%a: f32[60, 64], %b: f32[100, 64]", "matmul(%a, %b, trans_b=True)", "f32[60, 100]"),
    "columns": product("%a: f32[7, 30], %b: f32[30, 100]", "matmul(%a, %b)", "f32[7, 100]"),
    "packed": product("%a: f32[9, 64], %b: f32[7, 64, 16]", "cpu.linear_packed(%a, %b, columns=100)", "f32[9, 100]"),
    "one tap": conv(36, 1),
    "nine taps": conv(5, 3),
}


def claim_of(text: str, ctx: Any) -> Claim:
    """The rule that takes the task with an anchor."""
    graph = run_graph_passes(parse_graph(text, ctx.registry.operators), ctx)
    (task,) = (task for task in fuse(graph, ctx).tasks if task.anchor is not None)
    return next(claims(task, ctx, []))


@pytest.mark.parametrize("name", CASES)
def test_no_two_points_are_the_same_program_and_the_default_is_one(name) -> None:
    ctx = make_context("cpu:znver5", {"threads": 1})
    claim = claim_of(CASES[name], ctx)
    space = space_of(claim.rule, claim.match, ctx)
    programs: dict[Any, Any] = {}
    for params in space:
        program = claim.rule.build(claim.match, params, ctx)
        same = (structural_hash(program.module), program.arguments, program.scratch)
        assert programs.setdefault(same, params) == params
    assert len(programs) > 5
    assert claim.rule.default(claim.match, ctx) in programs.values()


def test_an_image_that_is_read_where_it_lies_is_copied_for_longer_runs_alone() -> None:
    ctx = make_context("cpu:znver5", {"threads": 1})
    found = {}
    for taps in (1, 3):
        claim = claim_of(conv(36, taps), ctx)
        found[taps] = {params.copies_image for params in space_of(claim.rule, claim.match, ctx)}
    assert found == {1: {False}, 3: {False, True}}


@pytest.mark.parametrize(("channels", "is_copied"), [(5, True), (17, True), (64, False), (256, False)])
def test_an_image_is_copied_by_default_where_its_runs_are_short(channels, is_copied) -> None:
    ctx = make_context("cpu:znver5", {"threads": 1})
    claim = claim_of(conv(channels, 3), ctx)
    assert claim.rule.default(claim.match, ctx).copies_image == is_copied
