"""Scripts as the thread IR they become."""

from textwrap import dedent

from hidet import lang
from hidet.cuda.intrinsics import INTRINSICS
from hidet.dims import symbol
from hidet.ir.parser import parse_module
from hidet.ir.printer import print_module
from hidet.ir.structural import structural_equal
from hidet.lang import attr, attrs, f16, f32, grid, i32, local_layout, register_tensor, row_major, spatial
from hidet.lang.cuda import blockDim, blockIdx, threadIdx


def assert_becomes(module, text):
    printed = print_module(module)
    assert printed == dedent(text).lstrip()
    assert structural_equal(parse_module(printed, INTRINSICS), module)


def test_the_naive_matmul():
    m_size, n_size, k_size = 3, 4, 5
    with lang.script_module() as script_module:

        @lang.script
        def matmul(a: f32[m_size, k_size], b: f32[k_size, n_size], c: f32[m_size, n_size]):
            attr.cuda_grid_dim = ((m_size + 31) // 32, (n_size + 31) // 32)
            attr.cuda_block_dim = (32, 32)
            i = threadIdx.x + blockIdx.x * blockDim.x
            j = threadIdx.y + blockIdx.y * blockDim.y
            if i < m_size and j < n_size:
                c[i, j] = 0.0
                for k in range(k_size):
                    c[i, j] += a[i, k] * b[k, j]

    assert_becomes(
        script_module.ir_module(),
        """
        module(entry="launch")

        @kernel(block=(32, 32, 1))
        def matmul(a: f32[3, 5], b: f32[5, 4], c: f32[3, 4]):
            i: i32 = call("gpu.thread_idx.x", type=i32) + call("gpu.block_idx.x", type=i32) * call("gpu.block_dim.x", type=i32)
            j: i32 = call("gpu.thread_idx.y", type=i32) + call("gpu.block_idx.y", type=i32) * call("gpu.block_dim.y", type=i32)
            if i < i32(3) and j < i32(4):
                c[cast(i, i64), cast(j, i64)] = 0.0
                for k in range(5):
                    c[cast(i, i64), cast(j, i64)] = c[cast(i, i64), cast(j, i64)] + a[cast(i, i64), k] * b[k, cast(j, i64)]

        @host
        def launch(a: f32[3, 5], b: f32[5, 4], c: f32[3, 4]):
            launch("matmul", [1, 1], [a, b, c], block=[32, 32])
        """,  # noqa: E501  # as it is printed
    )


def test_symbolic_extents_become_parameters_and_size_the_launch():
    n = symbol("n")
    with lang.script_module() as script_module:

        @lang.script
        def scale(x: f16[n, 8], factor: f16):
            attrs.cuda.grid_dim = n
            attrs.cuda.block_dim = 8
            attrs.cuda.dynamic_smem_bytes = n * 4
            attrs.cuda.min_blocks = 2
            x[blockIdx.x, threadIdx.x] *= factor

    assert_becomes(
        script_module.ir_module(),
        """
        module(entry="launch")

        @kernel(sizes=('n',), block=(8, 1, 1), min_blocks=2)
        def scale(x: f16[n, 8], factor: f16, n: i64):
            x[cast(call("gpu.block_idx.x", type=i32), i64), cast(call("gpu.thread_idx.x", type=i32), i64)] = x[cast(call("gpu.block_idx.x", type=i32), i64), cast(call("gpu.thread_idx.x", type=i32), i64)] * factor

        @host(sizes=('n',))
        def launch(x: f16[n, 8], factor: f16, n: i64):
            launch("scale", [n], [x, factor, n], block=[8], shared_bytes=n * 4)
        """,  # noqa: E501  # as it is printed
    )


def test_tasks_become_loops_and_registers_get_constant_indices():
    with lang.script_module() as script_module:

        @lang.script
        def fill(c: f32[64, 64]):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 256
            mapping = spatial(16, 16).repeat(2, 2)
            registers = register_tensor(f32, layout=local_layout(16, 16) * row_major(2, 2))
            for i, j in mapping.on(threadIdx.x):
                registers[i, j] = 1.0
            for i, j in mapping.on(threadIdx.x):
                c[i, j] = registers[i, j]

    text = print_module(script_module.ir_module())
    body = dedent(text[text.index("    registers") : text.index("\n\n@host")])
    assert (
        body
        == dedent(
            """
        registers: f32[4] @ register
        worker: i64 = cast(call("gpu.thread_idx.x", type=i32), i64)
        for i in unroll(2):
            for j in unroll(2):
                i_1: i64 = worker // 16 * 2 + i
                j_1: i64 = worker % 16 * 2 + j
                registers[i * 2 + j] = 1.0
        worker_1: i64 = cast(call("gpu.thread_idx.x", type=i32), i64)
        for i_2 in unroll(2):
            for j_2 in unroll(2):
                i_3: i64 = worker_1 // 16 * 2 + i_2
                j_3: i64 = worker_1 % 16 * 2 + j_2
                c[i_3, j_3] = registers[i_2 * 2 + j_2]"""
        )[1:]
    )


def test_what_is_known_at_build_time_leaves_no_trace():
    use_half = False
    factors = {"a": 2, "b": 3}

    with lang.script_module() as script_module:

        @lang.script
        def main(x: f32[4]):
            steps = [factors[name] * 10 for name in sorted(factors)]
            scaled = lambda value: value * steps[0]  # noqa: E731  # what a script may say
            if use_half:
                undefined_name  # noqa: B018, F821  # never looked at
            for position, step in enumerate(steps):
                assert step > 0, f"step {position} is {step}"
                x[position] = scaled(x[position]) + step

    assert_becomes(
        script_module.ir_module(),
        """
        module(entry="main")

        @host
        def main(x: f32[4]):
            x[0] = x[0] * 20.0 + 20.0
            x[1] = x[1] * 20.0 + 30.0
        """,
    )


def test_scripts_call_each_other_by_what_they_are():
    with lang.script_module() as script_module:

        @lang.script
        def square(x: f32) -> f32:
            return x * x

        @lang.script
        def apply(x: ~f32, n: i32):
            attrs.cuda.grid_dim = n
            attrs.cuda.block_dim = 1
            x[blockIdx.x] = square(x[blockIdx.x])

        @lang.script
        def clear(x: ~f32):
            attrs.func_kind = "cpu_kernel"
            for i, j in grid(2, 3):
                x[i * 3 + j] = 0.0

        @lang.script
        def launch(x: ~f32, n: i32):
            attrs.func_kind = "public"
            apply(x, n + 1)
            clear(~x[n])

    text = print_module(script_module.ir_module())
    assert 'x[cast(call("gpu.block_idx.x", type=i32), i64)] = call("square", ' in text
    assert '    launch("apply", [cast(n + i32(1), i64)], [x, n + i32(1)], block=[1])\n' in text
    assert '    invoke("clear", [address(x, cast(n, i64))])\n' in text
