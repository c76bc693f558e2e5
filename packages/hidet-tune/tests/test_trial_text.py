"""Programs of CUDA's rules travel to measuring processes as text, and are what they were when they are read there."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, replace

import pytest

from hidet.context import make_context
from hidet.graph.parser import parse_graph
from hidet.ir.parser import parse_module
from hidet.ir.structural import structural_hash
from hidet.plugins.host import load_registry
from hidet.schedule.claims import claims
from hidet.schedule.rule import Choice
from hidet.schedule.shared_programs import build
from hidet.tuning.strategy import points_of
from hidet.tuning.subjects import tasks_of
from hidet.tuning.trial import Trial, memory_of, program_text, trial_from

GRAPHS = {
    "product": "%a: f16[512, 1024], %b: f16[1024, 768]):\n  %0: f16[512, 768] = matmul(%a, %b)",
    "softmax": "%a: f16[512, 1024]):\n  %0: f16[512, 1024] = softmax(%a, axis=1)",
    "sum": "%a: f32[64, 4096]):\n  %0: f32[64] = sum(%a, axes=[1])",
    "convolution": "%x: f16[4, 64, 28, 28], %w: f16[64, 64, 3, 3]):\n"
    "  %0: f16[4, 64, 28, 28] = conv(%x, %w, padding=1)",
}


@pytest.mark.parametrize("name", GRAPHS)
def test_points_of_rules_are_the_same_programs_again(name: str) -> None:
    ctx = make_context("cuda:sm_90a", {"cache": False, "tune.store": "off"})
    graph = parse_graph(f"graph g({GRAPHS[name]}\n  return %0\n", load_registry().operators)
    rows = ctx.registry.intrinsic_rows()
    checked = 0
    for step, *_ in tasks_of([(graph, ctx)]).values():
        claim = next(each for each in claims(step.task, ctx, []) if each.spec.name == step.rule_name)
        choice = Choice(claim.spec.name, claim.rule, claim.match, claim.rule.default(claim.match, ctx))
        points = [params for params, _ in points_of(claim.rule, claim.match, ctx)]
        for params in [choice.params, *random.Random(0).sample(points, min(3, len(points)))]:
            program, memory = program_text(build(replace(choice, params=params), ctx).program), memory_of(step.task)
            assert program is not None and memory is not None
            trial = Trial(memory, program, program, rounds=3)
            assert trial_from(json.loads(json.dumps(asdict(trial)))) == trial
            assert structural_hash(parse_module(program.module, rows)) == program.code
            checked += 1
    assert checked > 3
