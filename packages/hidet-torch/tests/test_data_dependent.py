"""Sizes that depend on data, branches and loops, in one graph."""

import pytest
import torch
import torch._dynamo
from torch._higher_order_ops.while_loop import while_loop

import hidet
import hidet.torch
from hidet.errors import ShapeError, UnsupportedOp
from hidet.torch.emitter import TorchEmitter

X = torch.arange(-6.0, 6.0).reshape(4, 3)

pytestmark = pytest.mark.filterwarnings("ignore::hidet.errors.FallbackWarning")


def agree(function, *calls, eager=0, strict=True, **compile_options):
    """The compiled function gives what eager mode gives, at every call, in one graph."""
    torch._dynamo.reset()
    patch = {"capture_dynamic_output_shape_ops": True, "capture_scalar_outputs": True}
    with torch._dynamo.config.patch(**patch), hidet.torch.collect_reports() as reports:
        options = {"strict": strict and not eager}
        compiled = torch.compile(function, backend="hidet", fullgraph=True, options=options, **compile_options)
        for args in calls:
            torch.testing.assert_close(compiled(*args), function(*args), rtol=1e-5, atol=1e-5)
    assert sum(report.nodes.eager for report in reports) == eager
    return reports


@torch.library.custom_op("hidet_tests::positive", mutates_args={})
def positive(x: torch.Tensor) -> torch.Tensor:
    """An operator of the user's, which runs in torch."""
    return x[x > 0]


@positive.register_fake
def _(x):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


def test_nonzero_and_what_is_computed_from_it():
    agree(lambda x: torch.nonzero(x > 0) * 2, (X,), (-X,), (torch.zeros(4, 3),))


def test_a_mask_selects():
    agree(lambda x: x[x > 0].exp(), (X,), (X - 100,))
    agree(lambda x: torch.masked_select(x, x[0] > -5).sum(), (X,))


def test_a_mask_selects_along_a_later_axis():
    mask = torch.tensor([True, False, True])
    agree(lambda x, mask: x[:, mask] + 1, (X, mask), (X, ~mask))


ONE_MASK = {
    "selects rows of two tensors": lambda b, s, k: (b[k], s[k]),
    "selects what is computed with": lambda b, s, k: (b[k] * s[k][:, None]).sum(0),
    "selects twice what is reduced": lambda b, s, k: (b[k].sum(0), s[k].sum(0)),
    "selects, and its positions are asked for": lambda b, s, k: (s[k], k.nonzero(), k.nonzero() * 2),
}


@pytest.mark.parametrize("function", ONE_MASK.values(), ids=ONE_MASK)
def test_one_mask(function):
    agree(lambda b, s: function(b, s, s > 0), (X, X[:, 0]), (X, -X[:, 0]), (X, X[:, 0] - 100))


def test_one_mask_selects_twice_in_a_module_that_is_captured_whole():
    class Kept(torch.nn.Module):
        def forward(self, boxes, scores):
            kept = scores > 0
            return boxes[kept], scores[kept]

    compiled = hidet.compile(Kept(), (X, X[:, 0]))
    for scores in (X[:, 0], -X[:, 0]):
        for made, expected in zip(compiled(X, scores), Kept()(X, scores), strict=True):
            assert torch.equal(torch.as_tensor(made), expected)


def test_unique_values_are_asked_for_twice():
    agree(lambda x: (torch.unique(x), torch.unique(x, return_counts=True)[1]), ((X / 3).round(),), (X * 0,))


def test_unique_values_with_numbers_and_counts():
    agree(lambda x: torch.unique((x / 3).round(), return_inverse=True, return_counts=True), (X,), (X * 0,))
    agree(lambda x: torch.unique((x / 3).round()), (X,))


def test_a_number_is_a_size():
    agree(lambda x: torch.ones(int(x.abs().amax().int().item()) + 1) * 2, (X,), (X * 2,))


def test_an_operator_that_core_lacks_runs_in_torch_and_defines_its_size():
    reports = agree(lambda x: positive(x) + 1, (X,), (X * 3,), (-X,), eager=1)
    assert ("eager", "torch:hidet_tests.positive.default") in reports[0].nodes.names


def test_an_operator_that_core_gives_up_after_counting_runs_in_torch(monkeypatch):
    def refuse(emitter, value):
        raise UnsupportedOp("not today")

    monkeypatch.setattr(TorchEmitter, "require_inferred", refuse)
    agree(lambda x: torch.nonzero(x), (X,), (X * 0,), eager=1)


def test_results_that_are_views_of_results_of_open_size():
    agree(lambda x: (x[x > 0].reshape(-1, 1), x[x > 0][:1]), (X,))


def test_a_branch_is_chosen_by_data():
    def function(x, w):
        return torch.cond(x.sum() > 0, lambda x, w: (x @ w).sin(), lambda x, w: x[:, :2] * 2, (x, w)) + 1

    w = torch.ones(3, 2)
    (report,) = agree(function, (X, w), (-X, w), (X + 1, w))
    assert report.nodes.control == 1


def test_a_branch_on_sizes_that_are_open():
    def function(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.reshape(-1).cos().reshape(x.shape), (x,))

    agree(function, (X,), (torch.ones(7, 3),), (-torch.ones(9, 3),), dynamic=True)


def test_a_branch_that_returns_its_operand_transposed():
    def function(x):
        return torch.cond(x.sum() > 0, lambda x: x.t().clone(), lambda x: x.t() * 2, (x,))

    agree(function, (X,), (-X,))


def test_a_module_with_a_branch():
    class Gate(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: self.left(x), lambda x: self.right(x).relu(), (x,))

    gate = Gate().eval()
    with torch.no_grad():
        agree(gate, (X,), (-X,))


def test_a_loop_runs_until_its_condition_fails():
    def function(x, limit):
        return while_loop(lambda y, n: y.sum().abs() < limit.sum(), lambda y, n: (y * 2, n + 1), (x, torch.zeros(())))

    agree(function, (X + 1, torch.tensor(100.0)), (X, torch.tensor(1.0)), (X * 50, torch.tensor(1.0)))


def test_a_branch_with_random_numbers_runs_in_torch():
    def function(x):
        return torch.cond(x.sum() > 0, lambda x: torch.rand_like(x) * 0, lambda x: x * 2, (x,))

    agree(function, (X,), (-X,), eager=1)


AT_A_NUMBER = {
    "a row of an input, beside a result": lambda x, n: (x.select(0, n), x + 1),
    "a few rows of an input, beside a result": lambda x, n: (x.narrow(0, n, 1), x + 1),
    "both sides of a result": lambda x, n: ((y := x * 2)[n:], y[:n]),
    "both sides, and the whole": lambda x, n: (x[n:] * 2, (y := x * 2)[n:].t(), y, y[:n]),
    "what is overwritten": lambda x, n: (x.add_(1)[n:], x[:n]),
}
AT_ANY_NUMBER = {
    "both sides of an input": lambda x, n: (x[n:], x[:n]),
    "one side of an input": lambda x, n: x[n:],
    "a view of a view": lambda x, n: (x.t()[:, n:].t()[1:], x[1:, 1:][:n]),
    "parts of a result": lambda x, n: ((y := x * 2)[n:], y[:n], y[n:].t()),
}


@pytest.mark.parametrize("function", AT_A_NUMBER.values(), ids=AT_A_NUMBER)
def test_views_at_a_place_that_is_read_share_memory_as_in_eager_mode(check_compiled, function):
    def read(x, number):
        n = number.item()
        torch._check(n >= 0)
        torch._check(n < x.shape[0])
        return function(x, n)

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        check_compiled(read, X, torch.tensor(1), more=[(X, torch.tensor(3))])


@pytest.mark.parametrize("function", AT_ANY_NUMBER.values(), ids=AT_ANY_NUMBER)
@pytest.mark.thorough(every=2)
def test_views_at_any_number_that_is_read_share_memory_as_in_eager_mode(check_compiled, function):
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        numbers = [(X, torch.tensor(n)) for n in (3, 0, -1, 9, -9)]
        check_compiled(lambda x, number: function(x, number.item()), X, torch.tensor(1), more=numbers)


def test_numbers_that_are_read_count_from_the_end_where_they_are_negative():
    def function(x, number):
        n = number.item()
        copy = x.clone()
        copy[n:] = 0
        return x[n:] * 2, x[:n] * 2, x[:, :n].sum(), copy

    agree(function, *[(X, torch.tensor(n)) for n in (-1, 2, -9, 9, 0)])


def test_numbers_are_computed_from_what_is_read(check_compiled):
    def function(x, n):
        number = (n + 1).item()
        return x.narrow(0, number, 2) * 2, torch.ones(round(abs(number) ** 0.5 * 1.3))

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        check_compiled(function, X, torch.tensor(1), more=[(X, torch.tensor(n)) for n in (0, -3, -4)], strict=True)


def test_a_position_that_is_read_has_to_be_on_its_axis():
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled = torch.compile(lambda x, n: x.select(0, (n + 1).item()) * 2, backend="hidet", fullgraph=True)
        for n in (1, -2, 2, -5):
            assert torch.equal(compiled(X, torch.tensor(n)), X[n + 1] * 2)
        for n in (3, -6, 10**6):
            with pytest.raises(ShapeError, match="operator select needs"):
                compiled(X, torch.tensor(n))


def test_parts_of_an_input_have_sizes_that_are_read(check_compiled):
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        check_compiled(lambda x, n: x.split(n.tolist()), X, torch.tensor([1, 3]), more=[(X, torch.tensor([4, 0]))])


def test_views_of_what_a_mask_selects_share_memory(check_compiled):
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        check_compiled(lambda x: ((y := x[x > 0]).reshape(-1, 1), y, y[1:]), X, more=[(X + 2,)])


def test_numbers_computed_from_what_is_read_are_returned():
    def function(x):
        n = x.amin().int().item()
        return x + 1, n, n * 2 + x.shape[0]

    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled = torch.compile(function, backend="hidet", fullgraph=True)
        assert [compiled(x)[1:] for x in (X, X + 6, X[:2])] == [(-6, -8), (0, 4), (-6, -10)]


NUMBERS_OF_RESULTS = {
    "a mask": lambda x: x[x > 0].shape[0],
    "positions": lambda x: x.nonzero().shape[0] * 2,
    "an operator that runs in torch": lambda x: positive(x).shape[0],
}


@pytest.mark.parametrize("function", NUMBERS_OF_RESULTS.values(), ids=NUMBERS_OF_RESULTS)
def test_the_number_of_results_is_returned(function):
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(lambda x: (x + 1, function(x)), backend="hidet", fullgraph=True)
        for x in (X, X - 100, X * 0):
            assert compiled(x)[1] == function(x)


def test_an_operator_that_runs_in_torch_gets_the_number_of_results():
    @torch.library.custom_op("hidet_tests::plus_number", mutates_args=())
    def plus_number(x: torch.Tensor, number: int) -> torch.Tensor:
        return x + number

    plus_number.register_fake(lambda x, number: torch.empty_like(x))
    agree(lambda x: plus_number(x[x > 0] + 2, x[x > 0].shape[0]), (X,), (-X,), eager=1)
    agree(lambda x: plus_number(x + 9, positive(x).shape[0]), (X,), (X * 0,), eager=2)
