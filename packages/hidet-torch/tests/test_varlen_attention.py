"""torch's varlen_attn: attention of packed sequences is compiled, on a CPU too, where torch has no kernel of it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

import hidet.torch
from hidet.testing.packed_attention import attention_of_sequences, positions

varlen = pytest.importorskip("torch.nn.attention.varlen")

pytestmark = pytest.mark.filterwarnings("ignore::hidet.errors.FallbackWarning")

ROWS, KEYS = [3, 0, 1, 17], [4, 2, 0, 12]
TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-5}
SETTINGS = inspect.signature(varlen.varlen_attn).parameters
needs_gqa = pytest.mark.skipif("enable_gqa" not in SETTINGS, reason="this torch has no grouped heads")
needs_window = pytest.mark.skipif("window_size" not in SETTINGS, reason="this torch has no windows")


def operands(
    dtype: torch.dtype, rows: list[int], keys: list[int], heads: tuple[int, int] = (4, 4), device: str = "cpu"
) -> tuple[torch.Tensor, ...]:
    """Queries, keys, values, and where their sequences start."""
    random = torch.Generator().manual_seed(sum(rows))
    shapes = (sum(rows), heads[0], 16), (sum(keys), heads[1], 16), (sum(keys), heads[1], 16)
    tensors = [torch.randn(shape, generator=random).to(dtype) for shape in shapes]
    ends = [torch.from_numpy(positions(lengths)) for lengths in (rows, keys)]
    return tuple(tensor.to(device) for tensor in (*tensors, *ends))


def expected(
    given: tuple[torch.Tensor, ...], rows: list[int], keys: list[int], **settings: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """As torch's kernels have it: a row without keys has a log-sum-exp of +inf."""
    arrays = (tensor.double().cpu().numpy() for tensor in given[:3])
    result, logarithms = map(torch.from_numpy, attention_of_sequences(*arrays, rows, keys, **settings))
    return result, torch.where(logarithms.isneginf(), torch.inf, logarithms)


def attend(*given: Any, **settings: Any) -> Any:
    return varlen.varlen_attn(*given, return_aux=varlen.AuxRequest(lse=True), **settings)


def compiled(function: Any, **options: Any) -> Any:
    """Refused unless nothing is left to torch."""
    torch.compiler.reset()
    return torch.compile(function, backend="hidet", fullgraph=True, options={"strict": True, **options})


def assert_right(found: Any, given: Any, rows: list[int], keys: list[int], **settings: Any) -> None:
    tolerance = TOLERANCE[given[0].dtype]
    for got, want in zip(found, expected(given, rows, keys, **settings), strict=True):
        torch.testing.assert_close(got.double().cpu(), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_packed_sequences_are_compiled(dtype: torch.dtype) -> None:
    given = operands(dtype, ROWS, KEYS)
    found = compiled(attend)(*given, 17, 12)
    assert [tensor.dtype for tensor in found] == [dtype, torch.float32]
    assert_right(found, given, ROWS, KEYS)


@needs_window
@pytest.mark.parametrize("window", [(-1, 0), (3, 0), (2, 1)], ids=str)
def test_windows_are_those_of_flash_attention(window: tuple[int, int]) -> None:
    """Also where sequences have more queries than keys: rows without keys are zero."""
    given = operands(torch.float32, ROWS, KEYS)
    found = compiled(attend)(*given, 17, 12, window_size=window, scale=0.3)
    assert_right(found, given, ROWS, KEYS, window=window, scale=0.3)


@needs_gqa
def test_query_heads_share_key_heads() -> None:
    given = operands(torch.float16, ROWS, KEYS, heads=(4, 2))
    assert_right(compiled(attend)(*given, 17, 12, enable_gqa=True), given, ROWS, KEYS)


def test_lengths_differ_from_call_to_call() -> None:
    """Totals, numbers of sequences and longest ones become symbols: few graphs serve all calls."""
    function = compiled(attend)
    lengths = (([5, 9], [6, 9]), ([7, 11, 2], [7, 4, 10]), (ROWS, KEYS), ([30], [40]), ([9, 9, 9], [1, 2, 3]))
    with hidet.torch.collect_reports() as reports:
        for rows, keys in lengths:
            given = operands(torch.float32, rows, keys)
            assert_right(function(*given, max(rows), max(keys)), given, rows, keys)
    assert len(reports) <= 2


def test_projections_are_read_where_they_lie() -> None:
    """Queries, keys and values of one product, heads side by side."""
    given = operands(torch.float32, KEYS, KEYS)
    packed = torch.stack(given[:3], dim=1).reshape(sum(KEYS), -1)

    def function(x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        q, k, v = x.view(-1, 3, 4, 16).unbind(1)
        result: torch.Tensor = varlen.varlen_attn(q, k, v, ends, ends, 12, 12)
        return result.flatten(1) + 1

    found = compiled(function)(packed, given[3])
    torch.testing.assert_close(found.double() - 1, expected(given, KEYS, KEYS)[0].flatten(1), rtol=1e-5, atol=1e-5)


@pytest.mark.skipif("num_splits" not in SETTINGS, reason="this torch does not split keys")
def test_keys_that_are_not_split_are_summed_in_one_order_whatever_the_batch() -> None:
    function, given = compiled(attend), operands(torch.float32, ROWS, KEYS)
    together = function(*given, 17, 12, num_splits=1)[0][-17:]
    alone = [tensor[-count:] for tensor, count in zip(given[:3], (17, 12, 12), strict=True)]
    ends = [torch.from_numpy(positions([count])) for count in (17, 12)]
    assert torch.equal(function(*alone, *ends, 17, 12, num_splits=1)[0], together)


def test_the_state_of_random_numbers_is_zero() -> None:
    given = operands(torch.float32, ROWS, KEYS)
    *_, state = compiled(torch.ops.torch_attn._varlen_attn.default)(*given, 17, 12)
    assert state.dtype == torch.uint64 and state.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("setting", "reason"), [("seqused_k", "with seqused_k"), ("block_table", "with block_table"), ("num_splits", "=2")]
)
def test_what_core_does_not_have_is_left_to_torch(setting: str, reason: str) -> None:
    if setting not in SETTINGS:
        pytest.skip(f"this torch has no {setting}")
    given = operands(torch.float32, ROWS, KEYS)
    settings = {
        "seqused_k": {"seqused_k": torch.ones(4, dtype=torch.int32)},
        "block_table": {
            "seqused_k": torch.ones(4, dtype=torch.int32),
            "block_table": torch.zeros(4, 1, dtype=torch.int32),
        },
        "num_splits": {"num_splits": 2},
    }[setting]
    if setting == "block_table":
        given = (given[0], *(tensor[None] for tensor in given[1:3]), *given[3:])
    with pytest.raises(Exception, match=reason if setting != "block_table" else "with seqused_k"):
        compiled(attend)(*given, 17, 12, **settings)


on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.gpu
@on_gpu
@needs_window
@pytest.mark.parametrize("heads", [(16, 16), pytest.param((16, 4), marks=needs_gqa)], ids=str)
@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (200, 0), (30, 50)], ids=str)
@pytest.mark.parametrize("depth", [64, 80, 128])
def test_attention_of_sequences_is_as_exact_as_torch_on_a_gpu(
    depth: int, window: tuple[int, int], heads: tuple[int, int]
) -> None:
    """Beside torch's kernel, whose log-sum-exp is the same; long and short sequences, whole numbers of tiles or not."""
    rows = [1, 0, 333, 1024, 64, 700]
    keys = [77, 5, 400, 1024, 64, 500]
    random = torch.Generator("cuda").manual_seed(depth)
    shapes = (sum(rows), heads[0], depth), (sum(keys), heads[1], depth), (sum(keys), heads[1], depth)
    tensors = [torch.randn(shape, generator=random, device="cuda").bfloat16() for shape in shapes]
    ends = [torch.from_numpy(positions(lengths)).cuda() for lengths in (rows, keys)]
    settings = {"window_size": window, **({} if heads[0] == heads[1] else {"enable_gqa": True})}
    given = (*tensors, *ends)
    found = compiled(attend)(*given, max(rows), max(keys), **settings)
    right = expected(given, rows, keys, window=window)
    eager = attend(*given, max(rows), max(keys), **settings)
    for got, torchs, want in zip(found, eager, right, strict=True):
        want = want.cuda()
        is_finite = want.isfinite()
        assert torch.equal(got.double()[~is_finite], want[~is_finite])
        ours, theirs = ((x.double() - want)[is_finite].square().mean().sqrt() for x in (got, torchs))
        assert ours <= 2 * theirs + 2.0**-8 * want[is_finite].square().mean().sqrt()


@pytest.mark.gpu
@on_gpu
def test_the_backward_pass_of_torch_takes_what_was_computed() -> None:
    """It reads the results and logarithms of the forward pass; some rows have no key."""
    rows, keys = [70, 0, 200], [50, 3, 200]
    gradients = []
    for function in (attend, compiled(attend, strict=False)):
        given = operands(torch.bfloat16, rows, keys, device="cuda")
        leaves = [tensor.requires_grad_() for tensor in given[:3]]
        result, _ = function(*given, 200, 200, **({"window_size": (-1, 0)} if "window_size" in SETTINGS else {}))
        result.float().square().sum().backward()
        gradients.append([leaf.grad.double() for leaf in leaves])
    for theirs, ours in zip(*gradients, strict=True):
        assert ours.isfinite().all()
        assert (ours - theirs).square().mean().sqrt() <= 2e-2 * theirs.square().mean().sqrt()
