"""Kernels that start while the one before them ends: who waits, and how they are launched."""

from __future__ import annotations

import re
import textwrap

import pytest

from hidet.cuda.intrinsics import INTRINSICS
from hidet.cuda.nvrtc import compile_cubin
from hidet.cuda.passes.overlapped_launches import OVERLAPPED, overlapped_launches
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.entries import compiled_entry
from hidet.cuda.testing.fake_driver import FakeDriver, Launch
from hidet.cuda.testing.schedules import with_threads
from hidet.cuda.testing.tasks import scheduled_task
from hidet.ir.func import Module
from hidet.ir.parser import parse_module
from hidet.ir.printer import print_module
from hidet.ir.structural import structural_hash

TEXT = """
module(entry="main")

@kernel
def k(x: ~f32):
    i, j = grid()
    x[i] = 1.0

@host
def main(x: ~f32):
    launch("k", [2, 1], [x], block=[32]{options})
    launch("k", [2, 1], [x], block=[32]{options})
"""


def module(options: str = "", before: str = "", attributes: str = "") -> Module:
    text = textwrap.dedent(TEXT).replace("{options}", options).replace("@kernel", f"@kernel{attributes}")
    return parse_module(text.replace("    x[i] = 1.0", f"{before}    x[i] = 1.0"), INTRINSICS)


def launched(arch: str, options: str = "", before: str = "", attributes: str = "", calls: int = 1) -> list[Launch]:
    """The launches, two a call, of a module that went through all passes."""
    fake = FakeDriver()
    run = compiled_entry(module(options, before, attributes), arch, fake)
    for _ in range(calls):
        run(4096, 9)
    return fake.launches


def test_a_kernel_waits_before_anything_else_and_lets_the_next_one_start() -> None:
    made = overlapped_launches(module())
    assert OVERLAPPED in made.function("k").attributes
    text = print_module(made)
    wait, allow, store, last = (
        text.index(part)
        for part in (
            "if is_independent == i32(0):",
            "cuda.grid_dependency_launch",
            "x[i] = 1.0",
            "if is_independent != i32(0):",
        )
    )
    assert wait < allow < store < last
    assert text.count("cuda.grid_dependency_wait") == 2
    assert print_module(parse_module(text, INTRINSICS)) == text
    assert structural_hash(overlapped_launches(made)) == structural_hash(made)


def test_barriers_and_maps_are_made_ready_before_the_wait() -> None:
    x = """
    barriers: u64[2] @ shared
    if call("gpu.thread_idx.x", type=i32) == 0:
        call("cuda.barrier_init", address(barriers, 0), 1, type=None)
    call("gpu.syncthreads", type=None)
"""
    text = print_module(overlapped_launches(module(before=x.lstrip("\n"))))
    begun, wait, store = (text.index(part) for part in ("gpu.syncthreads", "cuda.grid_dependency_wait", "x[i] = 1.0"))
    assert begun < wait < store
    # What is read in between has to be waited for.
    text = print_module(overlapped_launches(module(before="    y: f32 = x[0]\n" + x.lstrip("\n"))))
    assert text.index("cuda.grid_dependency_wait") < text.index("y: f32") < text.index("gpu.syncthreads")


def test_nothing_allows_loads_before_the_wait() -> None:
    # Through pointers that promise not to overlap, a compiler may read before a statement that writes any memory.
    (source,) = CudaTarget("sm_90a").sources(overlapped_launches(module()))
    assert "restrict" not in source.text
    (wait,) = (line for line in source.text.split("\n") if '"griddepcontrol.wait;"' in line)
    assert "volatile" in wait and '"memory"' in wait


def test_a_kernel_that_says_what_it_waits_for_is_left_alone() -> None:
    own = module(before='    call("cuda.grid_dependency_wait", type=None)\n')
    assert print_module(overlapped_launches(own)) == print_module(own)


@pytest.mark.parametrize(
    ("arch", "options", "attributes"),
    [
        ("sm_80", "", ()),
        ("sm_89", "", ()),
        ("sm_90a", "", (6,)),
        ("sm_90a", ", cluster=[2]", (4, 6)),
        # Blocks that wait for each other need the device at the same time: they begin after the kernel before.
        ("sm_80", ", is_cooperative=True", (2,)),
        ("sm_90a", ", cluster=[2], is_cooperative=True", (4, 2)),
    ],
)
def test_launches_have_the_attribute_where_the_kernel_waits(
    arch: str, options: str, attributes: tuple[int, ...]
) -> None:
    _, launch = launched(arch, options)
    assert launch.attributes == attributes
    assert (launch.grid, launch.block, launch.shared, launch.stream) == ((2, 1, 1), (32, 1, 1), 0, 9)
    assert launch.pointers


def test_a_kernel_that_waits_itself_is_launched_in_order() -> None:
    _, launch = launched("sm_90a", before='    call("cuda.grid_dependency_wait", type=None)\n')
    assert launch.attributes == ()


def test_the_first_kernel_of_a_call_is_launched_in_order_where_it_reads_weights_early() -> None:
    # A kernel of somebody else may have written them just before the call.
    found = launched("sm_90a", attributes='(weights=("x",))', calls=2)
    assert [launch.attributes for launch in found] == [(), (6,), (), (6,)]
    assert [launch.attributes for launch in launched("sm_90a")] == [(6,), (6,)]


CALLS = """
module(entry="main")

@kernel
def k(x: ~f32):
    i = grid()
    x[i] = 1.0

@host
def f(x: ~f32, n: i64):
    launch("k", [n], [x], block=[32])

@host
def main(x: ~f32):
    invoke("f", [x, 2])
    invoke("f", [x, 2], is_independent=True)
    invoke("f", [x, 2], is_independent=True)
    invoke("f", [x, 2])
    invoke("f", [x, 0])
    invoke("f", [x, 2], is_independent=True)
    invoke("f", [x, 2], is_independent=True)
"""


def test_a_kernel_is_told_whether_it_is_independent_of_those_since_the_last_one_that_waits() -> None:
    fake = FakeDriver()
    told: list[int] = []
    fake.on_launch = lambda launch: told.append(launch.word(1) & 0xFFFFFFFF)
    run = compiled_entry(parse_module(textwrap.dedent(CALLS), INTRINSICS), "sm_90a", fake)
    run(4096, 9)
    # The first of the last two waits, because the call before it, which it does not depend on, has launched nothing.
    expected = [0, 1, 1, 0, 0, 1]
    assert told == expected
    run(4096, 9)
    assert told == expected * 2


def test_a_kernel_that_may_return_early_is_not_told() -> None:
    text = print_module(overlapped_launches(module(before="    if i > 1:\n        return\n")))
    assert "is_independent" not in text and "cuda.grid_dependency_wait" in text


ATTENTION = """
graph g(%q: f16[2, 8, 1024, 64], %k: f16[2, 8, 1024, 64], %v: f16[2, 8, 1024, 64]):
  %0: f16[2, 8, 1024, 64] = attention(%q, %k, %v)
  return %0
"""


def linear(m: int, n: int, k: int, weight: str = "param %w") -> str:
    return f"""
graph g(%x: f16[{m}, {k}], {weight}: f16[{n}, {k}]):
  %0: f16[{m}, {n}] = linear(%x, %w)
  return %0
"""


def overlapped_kernels(graph: str) -> list[str]:
    """The kernels that a graph of one operator is made of, as they wait."""
    made = overlapped_launches(scheduled_task(graph, "sm_90a").program.module)
    return [
        print_module(Module((function,), function.name)) for function in made.functions if function.kind == "kernel"
    ]


@pytest.mark.parametrize("graph", [linear(8, 4096, 4096), linear(4096, 4096, 512), ATTENTION])
def test_warp_specialized_kernels_make_their_barriers_ready_before_they_wait(graph: str) -> None:
    with_barriers = [text for text in overlapped_kernels(graph) if "cuda.barrier_init" in text]
    assert with_barriers
    for text in with_barriers:
        *_, last = (at for at in range(len(text)) if text.startswith("tensor_load", at))
        assert text.index("cuda.barrier_init") < text.index("cuda.grid_dependency_wait") < last


@pytest.mark.parametrize(("m", "n", "k"), [(8, 4096, 4096), (2048, 2304, 768), (384, 768, 768), (4096, 4096, 4104)])
@pytest.mark.thorough(every=2)
def test_one_thread_of_a_warp_specialized_block_waits_at_its_end_which_costs_the_others_nothing(
    m: int, n: int, k: int
) -> None:
    step = scheduled_task(linear(m, n, k), "sm_90a")
    module = with_threads(step.program.module)
    found = []
    for each in (module, overlapped_launches(module)):
        (kernel, *_) = (f for f in each.functions if "barrier_init" in print_module(Module((f,), f.name)))
        source = next(s for s in CudaTarget("sm_90a").sources(each) if kernel.name in s.text)
        found.append(compile_cubin(source, "sm_90a").usage[kernel.name].registers)
    assert found[0] == found[1]
    text = print_module(Module((kernel,), kernel.name))
    copies = text.index("tensor_load", text.index("cuda.grid_dependency_launch"))
    assert copies < text.index("if is_independent != i32(0):") < text.index("wgmma_fence")
    assert "grid_dependency_end" not in text


def first_load(text: str, of: str) -> int:
    """Where a kernel first copies a box by a tensor map."""
    found = re.search(rf"tensor_load.*\b{of}\b", text)
    assert found is not None
    return found.start()


@pytest.mark.parametrize(("m", "n", "k"), [(8, 4096, 4096), (4096, 4096, 512), (777, 14336, 4096), (200, 512, 8192)])
def test_weights_are_on_their_way_to_the_first_stages_before_a_kernel_waits(m: int, n: int, k: int) -> None:
    (text,) = (text for text in overlapped_kernels(linear(m, n, k)) if "cuda.barrier_init" in text)
    made, wait = text.index("cuda.barrier_init"), text.index("cuda.grid_dependency_wait")
    assert made < first_load(text, "map_tile_b") < wait < first_load(text, "map_tile_a")
    (text,) = (text for text in overlapped_kernels(linear(m, n, k, "%w")) if "cuda.barrier_init" in text)
    assert text.index("cuda.grid_dependency_wait") < first_load(text, "map_tile_b")


def test_a_gemv_reads_weights_before_it_waits() -> None:
    text = next(text for text in overlapped_kernels(linear(1, 4096, 4096)) if "shuffle" in text)
    assert text.index("load(column0") < text.index("cuda.grid_dependency_wait") < text.index("load(row0")
    text = next(text for text in overlapped_kernels(linear(1, 4096, 4096, "%w")) if "shuffle" in text)
    assert text.index("cuda.grid_dependency_wait") < text.index("load(column0")


@pytest.mark.parametrize(("bias", "is_early"), [("param %b", True), ("%b", False)])
def test_what_a_gemv_adds_is_read_before_it_multiplies_and_weights_before_it_waits(bias: str, is_early: bool) -> None:
    text = f"""
graph g(%x: f16[2, 768], param %w: f16[640, 768], {bias}: f16[640], %r: f16[2, 640]):
  %0: f16[2, 640] = linear(%x, %w, %b)
  %1: f16[2, 640] = add(%0, %r)
  return %1
"""
    kernel = next(text for text in overlapped_kernels(text) if "shuffle" in text)
    wait, multiplied = kernel.index("cuda.grid_dependency_wait"), kernel.index("load(row0")
    assert (kernel.index("= x2[own_column]") < wait) == is_early
    assert wait < kernel.index("= x3[") < multiplied
    assert kernel.count("x2[") == kernel.count("x3[") == 1


def test_the_sum_of_splits_reads_what_it_adds_first_and_weights_before_it_waits() -> None:
    text = """
graph g(%x: f16[16, 14336], param %w: f16[512, 14336], param %b: f16[512], %r: f16[16, 512]):
  %0: f16[16, 512] = linear(%x, %w, %b)
  %1: f16[16, 512] = add(%0, %r)
  return %1
"""
    (kernel,) = (kernel for kernel in overlapped_kernels(text) if "load(partial" in kernel)
    wait, sums = kernel.index("cuda.grid_dependency_wait"), kernel.index("load(partial")
    assert kernel.rindex("= x2[") < wait < kernel.index("= x3[") <= kernel.rindex("= x3[") < sums


def with_bias(bias: str, shape: str) -> str:
    return f"""
graph g(%x: f16[512, 768], param %w: f16[640, 768], {bias} %b: f16[{shape}]):
  %0: f16[512, 640] = linear(%x, %w)
  %1: f16[512, 640] = add(%0, %b)
  return %1
"""


def test_a_bias_is_on_its_way_to_the_cache_before_a_kernel_waits() -> None:
    (kernel,) = (text for text in overlapped_kernels(with_bias("param", "640")) if "cuda.barrier_init" in text)
    prefetch, wait = kernel.index('"cuda.bulk_prefetch", x2'), kernel.index("cuda.grid_dependency_wait")
    assert prefetch < wait and "x2" in kernel[wait:]
    assert "weights=('x2', 'map_tile_b')" in kernel


@pytest.mark.parametrize(("bias", "shape"), [("", "640"), ("param", "512, 640"), ("param", "512, 1"), ("param", "1")])
def test_what_may_be_written_or_differs_between_rows_is_not(bias: str, shape: str) -> None:
    for kernel in overlapped_kernels(with_bias(bias, shape)):
        assert "bulk_prefetch" not in kernel


@pytest.mark.parametrize(("rows", "length", "copies"), [(128, 768, 1), (1, 4096, 1), (5, 16384, 2)])
@pytest.mark.parametrize("weight", ["param %w", "%w"])
def test_the_scale_of_a_norm_is_there_before_the_row_and_a_weight_before_a_kernel_waits(
    rows: int, length: int, copies: int, weight: str
) -> None:
    text = f"""
graph g(%x: bf16[{rows}, {length}], {weight}: bf16[{length}]):
  %0: bf16[{rows}, {length}] = rms_norm(%x, %w)
  return %0
"""
    kernel, *_ = overlapped_kernels(text)
    assert f"early: bf16[{8 * copies}] @ register" in kernel
    scale, row = kernel.index("load(x1"), kernel.index("load(x0")
    assert scale < row < kernel.index("gpu.shuffle_xor")
    wait = kernel.index("cuda.grid_dependency_wait")
    assert wait < row and (scale < wait) == (weight == "param %w")


def test_threads_have_no_registers_for_scales_beside_much_of_a_row() -> None:
    text = """
graph g(%x: bf16[16384, 1024], param %w: bf16[1024]):
  %0: bf16[16384, 1024] = rms_norm(%x, %w)
  return %0
"""
    kernel, *_ = overlapped_kernels(text)
    assert "early" not in kernel and kernel.index("load(x0") < kernel.index("load(x1")


@pytest.mark.parametrize(
    ("read", "is_early"),
    [
        ("    y: f32 = w[0]", True),
        ("    p: ~f32 = w + 8\n    y: f32 = p[0]", True),
        ("    p: ~f32 = x + 8\n    y: f32 = p[0]", False),
        ("    y: f32 = w[cast(x[0], i64)]", False),
        ("    p: ~f32 = w + 8\n    p = x\n    y: f32 = p[0]", False),
        ("    p: ~f32 = bitcast(i, ~f32)\n    y: f32 = p[0]", False),
        ("    y: f32 = load(bitcast(i, ~f32), [0])", False),
        ("    w[0] = 2.0\n    y: f32 = w[0]", False),
        ('    y: f32 = call("gpu.atomic_add", w, 2.0, type=f32)', False),
    ],
)
def test_of_memory_weights_alone_are_read_early_and_nothing_is_written(read: str, is_early: bool) -> None:
    text = TEXT.replace("{options}", "").replace("x: ~f32", "x: ~f32, w: ~f32").replace("[x]", "[x, w]")
    text = text.replace("@kernel", '@kernel(weights=("w",))').replace("    x[i] = 1.0", f"{read}\n    x[i] = y")
    printed = print_module(overlapped_launches(parse_module(text, INTRINSICS)))
    assert (printed.index("y: f32") < printed.index("cuda.grid_dependency_wait")) == is_early
