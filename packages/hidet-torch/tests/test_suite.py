"""A share of torch's own tables of tests; `nox -s torch_conformance` runs all of them."""

from __future__ import annotations

import random
from typing import Any

import numpy
import pytest
import torch

from hidet.torch.suite.__main__ import run_processes
from hidet.torch.suite.cases import Outcome, Selection
from hidet.torch.suite.compare import (
    Seen,
    distribution_problem,
    is_noise,
    is_same,
    kind_problem,
    stride_problem,
    value_problem,
)
from hidet.torch.suite.observe import draws, observe
from hidet.torch.suite.programs import Program, by_distinct, chosen
from hidet.torch.suite.report import coverage, summary
from hidet.torch.suite.run import eager, in_float64, is_unwritten, run_case

PARTS = 200
LEAST_SHARE = 0.7
"""Of the cases of the part, how many have no node left to torch."""


@pytest.mark.slow
def test_a_share_of_torchs_own_tables_gives_right_answers() -> None:
    outcomes = run_processes(1, Selection(parts=PARTS, most=1))
    assert not [o for o in outcomes if o.result in ("wrong", "error")], summary(outcomes)
    counted = [o for o in outcomes if o.result not in ("refused", "torch")]
    assert len(counted) > 20
    assert sum(o.is_whole for o in counted) >= LEAST_SHARE * len(counted), summary(outcomes)


def program(function: Any, *inputs: Any) -> Any:
    """A sampler of one program, whatever the seed."""

    def run(compile_with: Any, given: Any, dtype: Any) -> Any:
        return compile_with(function)(*given), [value for value in given if value.requires_grad]

    return lambda seed: Program(run, inputs)


def test_a_right_program_is_right_and_names_what_is_left_to_torch() -> None:
    x = torch.randn(5)
    assert run_case("a", program(lambda x: x.exp() + 1, x), False).result == "right"
    left = run_case("a", program(lambda x: torch.linalg.svdvals(x[None]) + 1, x), False)
    assert left.result == "right"
    assert left.left
    assert not left.is_whole


def test_gradients_are_compared_and_inputs_too() -> None:
    x = torch.randn(5, requires_grad=True)
    assert run_case("a", program(lambda x: x.exp(), x), True).result == "right"
    assert run_case("a", program(lambda x: x.detach(), x), True).result == "refused"
    assert run_case("a", program(lambda x: x.add_(1), torch.randn(5)), False).result == "right"


def test_a_program_that_computes_something_else_when_compiled_is_wrong() -> None:
    def other(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if torch.compiler.is_compiling() else x

    # It is torch that traces something else.
    assert run_case("a", program(other, torch.randn(5)), False).result == "torch"


def test_what_eager_mode_refuses_does_not_count() -> None:
    outcome = run_case("a", program(lambda x: x.view(7), torch.randn(5)), False)
    assert outcome.result == "refused"
    assert "| all | 1 | 0 | 0 |" in coverage([outcome], "1", "all")


def test_random_numbers_are_compared_by_distribution_and_fresh_memory_by_shape() -> None:
    assert run_case("a", program(torch.rand_like, torch.randn(50)), False).result == "statistics"
    assert run_case("a", program(torch.empty_like, torch.randn(50)), False).result == "shape"
    truths = torch.zeros(50, dtype=torch.bool)
    assert run_case("a", program(lambda x: torch.empty_like(x).fill_(True), truths), False).result == "right"
    few = torch.ones(2)
    assert run_case("a", program(lambda x: torch.multinomial(x, 1), few), False).result in ("statistics", "right")
    ours, theirs = [[torch.rand(400)]], [[torch.rand(400)]]
    assert distribution_problem(ours, theirs) is None
    assert "distributions differ" in str(distribution_problem(ours, [[torch.rand(400) * 0.7]]))


def test_unwritten_memory_is_told_from_written_whatever_it_held() -> None:
    for dtype in (torch.bool, torch.int64, torch.float16, torch.complex64):
        x = torch.zeros(4, 3, dtype=dtype)
        for make in (torch.empty_like, lambda x: x.new_empty(2, 5), lambda x: torch.empty((), dtype=x.dtype)):
            assert is_unwritten(program(make, x)(0), False)
        assert not is_unwritten(program(lambda x: torch.empty_like(x).fill_(1), x)(0), False)
        assert not is_unwritten(program(torch.zeros_like, x)(0), False)


def test_unwritten_memory_is_compared_by_strides() -> None:
    x = torch.empty(4, 3)
    assert stride_problem([x, 1], [torch.empty(4, 3), 1]) is None
    assert stride_problem([x[:1]], [torch.empty_strided((1, 3), (7, 1))]) is None
    assert "(3, 1), eager's has (1, 4)" in str(stride_problem([x], [torch.empty(3, 4).T]))


def test_a_program_draws_when_it_moves_a_generator() -> None:
    x = torch.ones(3)
    for function in (torch.rand_like, lambda x: x * random.random(), lambda x: x * float(numpy.random.rand())):
        assert draws(program(function, x)(0), backward=False)
    assert not draws(program(torch.empty_like, x)(0), backward=False)


def test_comparison_sees_number_type_dtype_shape_and_values() -> None:
    x = torch.tensor([1.0, float("nan")])
    assert is_same([x, 3], [x.clone(), 3])
    assert not is_same([x], [x, x])
    assert not is_same([torch.tensor([-1.0])], [torch.tensor([1.0])])
    assert "torch.float64" in str(kind_problem([x.double()], [x]))
    assert kind_problem([x], [x.clone()]) is None
    assert kind_problem([x[:1]], [x]) is not None
    assert kind_problem([1.0], [x]) is not None
    one = torch.tensor([1.0, 2.0])
    assert value_problem([Seen([one], [one], [one.double()])]) is None
    assert value_problem([Seen([one + 1e-3], [one], [one.double()])]) is not None
    assert value_problem([Seen([one * (1 + 5e-7)], [one])]) is not None


def test_float64_may_be_as_far_from_itself_as_float32_is_in_units() -> None:
    exact = torch.tensor([1.0, 2.0], dtype=torch.float64)
    near = exact + 4e-16
    off = exact.float() * (1 + 5e-7)
    assert value_problem([Seen([near], [exact], [exact])]) is not None
    assert value_problem([Seen([near], [exact], [exact], [off])]) is None
    assert value_problem([Seen([exact + 1e-12], [exact], [exact], [off])]) is not None


def test_operators_that_take_float32_for_integers_are_judged_by_float64() -> None:
    """torch.masked.var of integers computes in float32 by any default type: eager's rounding was no error at all."""
    numbers = torch.randint(-9, 10, (20, 30), generator=torch.Generator().manual_seed(0))
    variance = program(lambda x: torch.masked.var(x, 1, unbiased=True), numbers)(0)
    rounded = observe(variance, eager, backward=False)
    reference = in_float64(variance, rounded, backward=False)
    assert reference is not None
    assert (rounded[0].dtype, reference[0].dtype) == (torch.float32, torch.float64)
    torch.testing.assert_close(reference[0], numbers.double().var(1), rtol=1e-15, atol=0.0)
    # Division of integers rounds to integers; float64 would not.
    quotient = program(lambda x: torch.div(x, 7, rounding_mode="floor").to(torch.float32), numbers)(0)
    kept = in_float64(quotient, observe(quotient, eager, backward=False), backward=False)
    assert kept is not None
    torch.testing.assert_close(kept[0].double(), (numbers // 7).double(), rtol=0.0, atol=0.0)


def test_results_of_which_eager_has_no_digit_right_are_noise_and_others_are_not() -> None:
    """The gradient of a batch norm of two rows is zero but for what bfloat16 makes of the mean and the deviation."""
    cancelled, sums = torch.tensor([1e-7, -1e-7]), torch.tensor([1.0, 2.0])
    eager_noise, our_noise = torch.tensor([0.02, -0.03]), torch.tensor([-0.09, 0.08])
    wide = [cancelled.double(), sums.double()]
    assert is_noise([Seen([our_noise, sums], [eager_noise, sums], wide)])
    assert not is_noise([Seen([our_noise, sums * 1.1], [eager_noise, sums], wide)])
    assert not is_noise([Seen([cancelled, sums], [cancelled, sums], wide)])


def test_the_index_of_any_of_equal_elements_is_right() -> None:
    operands = torch.tensor([[3, 1, 3, 1]])
    first, last = torch.tensor([[0, 2]]), torch.tensor([[2, 0]])
    values = torch.tensor([[3, 3]])
    assert is_same(chosen((values, first), operands, 1), chosen((values, last), operands, 1))
    assert not is_same(chosen((values, first), operands, 1), chosen((values, torch.tensor([[0, 1]])), operands, 1))


def test_the_gradient_of_any_of_equal_elements_is_right() -> None:
    operands = torch.tensor([3.0, 1.0, 3.0, 1.0], requires_grad=True)

    def gradient(indices: list[int]) -> Any:
        distinct, taken = by_distinct(operands)
        return torch.autograd.grad(taken[torch.tensor(indices)], distinct, torch.tensor([5.0, 7.0]))[0].tolist()

    assert gradient([0, 1]) == gradient([2, 3]) == [7, 5]
    assert gradient([1, 0]) == [5, 7]


def test_a_sort_may_order_equal_elements_as_it_likes_in_backward_passes_too() -> None:
    selection = Selection(databases=("op",), operators=("msort",), dtypes=("f16",), directions=("backward",))
    (group,) = selection.groups()
    assert run_case("a", lambda seed: group.programs(seed)[0], True).result == "right"


def test_elements_that_are_drawn_together_are_told_from_a_wrong_distribution() -> None:
    def runs(rate: float) -> list[list[torch.Tensor]]:
        return [[(torch.rand(12, 1) < rate).float().expand(12, 60)] for _ in range(16)]

    for _ in range(10):
        assert distribution_problem(runs(0.5), runs(0.5)) is None
    assert distribution_problem(runs(0.9), runs(0.5)) is not None


def test_the_table_counts_cases_by_operator() -> None:
    outcomes = [
        Outcome("op:add:f32:forward:0", "right"),
        Outcome("op:add:f32:forward:1", "wrong", "3 | 4 at /home/me/model.py:3"),
        Outcome("op:svd:f32:forward:0", "right", left=("aten._linalg_svd.default",)),
        Outcome("op:svd:f32:forward:1", "refused", "no"),
        Outcome("optim:SGD:f32:forward:1", "error", "Boom"),
    ]
    text = coverage(outcomes, "2.13", "every case")
    assert "| operators | 2 | 3 | 2 | 1 |  | 66.7 % |" in text
    assert "| add | 2 | 1 | 1 |  | 2 |  |" in text
    assert "| svd | 1 | 1 |  |  | 0 | aten._linalg_svd.default |" in text
    assert "| op:add:f32:forward:1 | wrong | 3 / 4 at model.py:3 |" in text
    assert "| SGD | 1 | 0 |  | 1 | 0 |" in text


def test_samples_are_chosen_by_the_hash_of_their_name() -> None:
    groups = {group.name: group for group in Selection(databases=("optim",), dtypes=("f32",)).groups()}
    group = groups["optim:SGD:f32:forward"]
    chosen = Selection(most=3).numbers(group, 50)
    assert len(chosen) == 3
    assert chosen == Selection(most=3).numbers(group, 50)
    assert Selection().numbers(group, 50) == list(range(50))
