"""The public names of hidet 0.6 (the distribution `hidet` of other authors), and what became of each.

`test_names_of_hidet` holds every row against the code, and `docs/coming-from-hidet.md` is printed from them
(`python -m tests.names_of_hidet`).
"""

from __future__ import annotations

from pathlib import Path

from tests.name_rows import Group, Name, State
from tests.names_of_graphs import GROUPS as GROUPS_OF_GRAPHS
from tests.names_of_kernels import ADD, MODEL, TASK
from tests.names_of_kernels import GROUPS as GROUPS_OF_KERNELS

PAGE = Path(__file__).parent.parent / "docs" / "coming-from-hidet.md"


SETUP = """
import hidet, numpy, pickle, torch
from pathlib import Path
read = lambda name: Path(name).read_text()
x = hidet.asarray([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])
i = hidet.asarray([[1, 2, 3], [4, 5, 6]], dtype="int32")
one = hidet.asarray([7.0])
s = hidet.symbol([2, 3])
graph = hidet.trace_from(hidet.ops.relu(s) + 1.0)
product = hidet.trace_from(hidet.ops.matmul(s, x.transpose(0, 1)))
"""
"""What uses may name beside the files of a temporary directory, where they run."""

_TYPES = (
    "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 bfloat16 boolean complex64 "
    "complex128 float8_e4m3 float8_e5m2"
)

GROUPS = (
    Group(
        "hidet",
        acts={
            "Tensor": "assert isinstance(x, hidet.Tensor)",
            "FlowGraph": "assert isinstance(graph, hidet.FlowGraph)",
            "empty": "hidet.empty([2, 3], dtype='float16', device='cpu')",
            "zeros": "hidet.zeros([2, 3])",
            "ones": "hidet.ones([2, 3])",
            "full": "hidet.full([2, 3], 1.5)",
            "randn": "hidet.randn([2, 3], mean=1.0, stddev=0.5)",
            "randint": "hidet.randint(10, shape=[3])",
            "symbol": "hidet.symbol(['n', 3], dtype='float32')",
            "asarray": "hidet.asarray([1, 2], dtype='float32')",
            "from_torch": "hidet.from_torch(torch.ones(2))",
            "from_dlpack": "hidet.from_dlpack(torch.ones(2))",
            "arange": "hidet.arange(0, 5, 2)",
            "linspace": "hidet.linspace(0.0, 1.0, 5)",
            "empty_like": "hidet.empty_like(x)",
            "zeros_like": "hidet.zeros_like(x)",
            "ones_like": "hidet.ones_like(x, dtype='int32')",
            "full_like": "hidet.full_like(x, 2.0)",
            "randn_like": "hidet.randn_like(x)",
            "symbol_like": "hidet.symbol_like(x)",
            "trace_from": "hidet.trace_from(hidet.ops.relu(s), inputs=[s])",
            "symbol_var": "hidet.symbol_var('n')",
            "script": "hidet.script",
            "script_module": "hidet.script_module()",
            **{name: f"hidet.zeros([2], dtype=hidet.{name})" for name in _TYPES.split()},
            "save_compiled_graph": "hidet.save_compiled_graph(graph.build(), 'saved.hidet')",
            "load_compiled_graph": (
                "graph.build().save('saved.hidet'); hidet.load_compiled_graph('saved.hidet')(x.numpy())"
            ),
            "__version__": "assert hidet.__version__",
            "Operator": TASK + "assert isinstance(Twice(x), hidet.Operator)",
            "Module": MODEL + "assert isinstance(model, hidet.Module)",
            "nn": MODEL + "assert hidet.nn.Module is hidet.Module and model(x).shape == (2, 3)",
            "save_task": TASK
            + "hidet.save_task(Twice(x).task, 'task'); assert hidet.load_task('task').name == 'twice'",
            "load_task": TASK
            + "hidet.save_task(Twice(x).task, 't'); assert hidet.load_task('t').build('cpu')(x).shape",
            "backend": ADD + "assert 'fadd' in hidet.backend.codegen(m.ir_module(), target='cpu')",
            "logging": "hidet.logging.setConsoleLevel(hidet.logging.ERROR); assert hidet.logging.logger.level == 40",
            "Task": TASK + "assert isinstance(Twice(x).task, hidet.Task)",
            "Device": "assert isinstance(x.device, hidet.Device) and x.device.kind == 'cpu'",
            "device": "assert hidet.device('cuda', 1) == 'cuda:1'",
            "save_graph": "hidet.save_graph(graph, 'graph.hidet'); assert numpy.load('graph.hidet')['graph.json']",
            "load_graph": "hidet.save_graph(graph, 'g.hidet'); assert str(hidet.load_graph('g.hidet')) == str(graph)",
            "hip": "assert not hidet.hip.available() and hidet.hip.device_count() == 0",
            "distributed": (
                "where = f'file://{Path.cwd()}/ranks'\n"
                "hidet.distributed.init_process_group('gloo', init_method=where, world_size=1, rank=0)\n"
                "hidet.distributed.all_reduce(one, 'sum'); world = hidet.distributed.get_world_size()\n"
                "hidet.distributed.destroy_process_group(); assert (one.tolist(), world) == ([7.0], 1)"
            ),
        },
        present=(
            "tfloat32 option ir utils graph runtime drivers driver cuda ops frontend torch onnx dtypes lang testing cli"
        ),
        refused={
            "ffi": "hidet.ffi.runtime_api",
            "apps": "hidet.apps.compile_server",
            "kernels": "hidet.kernels.selective_scan_fn",
        },
        notes={
            "save_compiled_graph": "`compiled.save(path)` of what `hidet.compile` gives",
            "load_compiled_graph": "`hidet.load(path)`",
            "Device": "a text, `cpu` or `cuda:0`, that has `kind` and `id`",
            "save_graph": "text and arrays in a zip: opening one runs nothing",
            "save_task": "definitions alone: opening one runs nothing",
            "tfloat32": "a type of kernels; tensors have none of it",
            "hip": "a target is a wheel of its own; see [Targets](targets.md)",
            "randn": "drawn by numpy's global generator, so that `numpy.random.seed` repeats them",
        },
    ),
    Group(
        "hidet.Tensor",
        acts={
            "shape": "assert x.shape == (2, 3)",
            "dtype": "assert x.dtype.name == 'float32' and x.dtype == 'float32'",
            "device": "assert x.device == 'cpu' and x.device.kind == 'cpu'",
            "storage": "assert s.storage is None",
            "trace": "assert s.trace is None",
            "op": "assert hidet.ops.relu(s).op.name == 'relu'",
            "size": "assert x.size == 6",
            "nbytes": "assert x.nbytes == 24",
            "tolist": "assert one.tolist() == [7.0]",
            "item": "assert one.item() == 7.0",
            "numpy": "assert x.numpy().shape == (2, 3)",
            "torch": "assert x.torch().shape == (2, 3)",
            "cpu": "x.cpu()",
            "to": "x.to(dtype='float16', device='cpu')",
            "to_device": "x.to_device('cpu')",
            "astype": "x.astype('int32')",
            "float": "assert i.float().dtype.name == 'float32'",
            "copy": "assert x.copy() is not x",
            "detach": "x.detach()",
            "contiguous": "x.contiguous()",
            "reshape": "assert x.reshape([3, 2]).shape == (3, 2)",
            "squeeze": "assert x.reshape([1, 6]).squeeze(0).shape == (6,)",
            "unsqueeze": "assert x.unsqueeze(0).shape == (1, 2, 3)",
            "sum": "assert x.sum([1], keep_dim=True).shape == (2, 1)",
            "mean": "assert x.mean(0).shape == (3,)",
            "transpose": "assert x.transpose(0, 1).shape == (3, 2)",
            "expand": "assert one.expand(4).shape == (4,)",
            "view": "assert x.view('int32').shape == (2, 3) and x.view(shape=[6]).shape == (6,)",
            "rearrange": "assert x.rearrange([[1], [0]]).shape == (3, 2)",
            "__index__": "assert [4, 5, 6][hidet.asarray([2])] == 6",
            "masked_fill": "x.masked_fill(x < 0.0, 0.0)",
            "signature": "assert 'float32' in x.signature()",
            "is_symbolic": "assert s.is_symbolic()",
            "__add__": "x + 1, 1 - x, x * x, x / 2, x % 2.0, x**2, x @ x.transpose(0, 1)",
            "__and__": "i & 1, i | i, i ^ i, ~i, i << 1, i >> 1",
            "__lt__": "x < 0.0, x <= x, x > 1.0, x >= x",
            "__getitem__": "assert x[0, 1:, None].shape == (2, 1)",
            "__iter__": "assert len(list(x)) == 2",
            "__float__": "assert float(one) == 7.0 and int(one) == 7 and bool(one)",
            "__dlpack__": "torch.from_dlpack(x)",
            "__torch_function__": "assert torch.cat([x, x]).shape == (4, 3)",
            "layout": "assert x.layout(1, 2) == 5",
            "copy_": "a = hidet.zeros([2, 3]); memory = a.numpy(); a.copy_(x); assert (memory == x.numpy()).all()",
            "copy_async": "assert x.copy_async().tolist() == x.tolist() and x.copy_async() is not x",
            "cpu_async": "assert x.cpu_async().tolist() == x.tolist()",
        },
        present="cuda cuda_async cuda_",
        warns={"vcuda_": "x.vcuda_()"},
        refused={"hip": "x.hip()", "hip_": "x.hip_()", "vhip_": "x.vhip_()"},
        notes={
            "layout": "elements always lie in row-major order",
            "copy_": "on a GPU the tensor gets other memory, which others do not share",
            "copy_async": "the copy is there when it returns, as those of `cpu_async` and `cuda_async` are",
            "vcuda_": "nothing is converted to save memory: weights stay where they are",
            "hip": "a target is a wheel of its own; see [Targets](targets.md)",
            "contiguous": "the tensor itself, which always is",
        },
    ),
    Group(
        "hidet.ops",
        present=(
            "matmul matmul_nt conv1d conv2d conv3d avg_pool2d avg_pool3d max_pool2d max_pool3d relu leaky_relu "
            "sigmoid hardsigmoid clip relu6 prelu gelu silu hardswish logsigmoid celu hardshrink softplus "
            "softsign tanhshrink softshrink softmax logsoftmax attention instance_norm layer_norm group_norm add "
            "subtract multiply divide mod remainder pow maximum minimum atan2 logaddexp bitwise_and bitwise_or "
            "bitwise_xor bitwise_left_shift bitwise_right_shift where clamp negative positive square floor ceil "
            "round trunc sqrt rsqrt abs reciprocal exp expm1 log log2 log10 log1p erf bitwise_invert isfinite "
            "isinf isnan sign sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh equal not_equal less "
            "greater less_equal greater_equal logical_not logical_and logical_or logical_xor mean sum var min max "
            "std prod argmin argmax all any cumsum squeeze unsqueeze flatten concat cast take reshape im2col "
            "as_strided flip transpose broadcast pad tile split expand_dims gather index_select triu tril "
            "permute_dims repeat_interleave roll full arange linspace tri cuda_batch_matmul hip_batch_matmul "
            "matmul_x86 matmul_cublas einsum einops_rearrange conv1d_gemm conv1d_transpose conv2d_channel_last "
            "conv2d_winograd conv2d_gemm conv2d_gemm_fp16 conv2d_gemm_fp16_channel_last "
            "conv2d_gemm_image_transform conv2d_transpose conv2d_transpose_gemm conv3d_gemm conv3d_transpose "
            "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d "
            "adaptive_max_pool3d softmin hardtanh batch_norm_infer lp_norm real imag conj make_complex rearrange "
            "strided_slice view conv_pad meshgrid set_strided_slice scatter_ scatter_add_ resize2d embedding_bag "
            "symmetric_quantize symmetric_dequantize barrier transfer wait_tensor"
        ),
        refused={
            **{
                name: f"hidet.ops.{name}(x)"
                for name in ("fused_operator", "all_reduce", "all_gather", "reduce_scatter")
            },
        },
        notes={
            "matmul_cublas": "a kernel of hidet; no library is called",
            "scatter_": "on a GPU the tensor gets other memory, which others do not share",
            "make_complex": "complex tensors are stored, kernels compute with `real` and `imag` parts",
            "var": "`correction=0`, as numpy has it",
        },
        doc="`help(hidet.ops.NAME)` says what each takes, and shows a call.",
    ),
    *GROUPS_OF_GRAPHS,
    Group(
        "hidet.option",
        acts={
            "cache_dir": "hidet.option.cache_dir('.')",
            "get_cache_dir": "hidet.option.get_cache_dir()",
            "cache_operator": "hidet.option.cache_operator(True)",
            "search_space": "hidet.option.search_space(0)",
            "parallel_build": "hidet.option.parallel_build(False)",
            "num_local_workers": "hidet.option.num_local_workers(1)",
            "save_lower_ir": "hidet.option.save_lower_ir(True)",
            "get_parallel_tune": "hidet.option.get_parallel_tune()",
            "runtime_check": "hidet.option.runtime_check(True)",
            "debug_strict_broadcast_check": "hidet.option.debug_strict_broadcast_check(True)",
            "execution_mode": "hidet.option.execution_mode('compilation')",
            "get_hexcute_matmul": "hidet.option.get_hexcute_matmul()",
            "use_torch_stream": "hidet.option.use_torch_stream(True)",
            "current_context": "hidet.option.current_context().get_option('search_space')",
            "set_option": "hidet.option.set_option('search_space', 0)",
            "dump_options": "hidet.option.dump_options()",
            "restore_options": "hidet.option.restore_options(hidet.option.dump_options())",
            "cuda.arch": "hidet.option.cuda.arch('auto')",
            "cpu.arch": "hidet.option.cpu.arch('haswell')",
            "hip.arch": "hidet.option.hip.arch('auto')",
            "get_cache_operator": "assert hidet.option.get_cache_operator()",
            "get_search_space": "assert hidet.option.get_search_space() == 0",
            "get_parallel_build": "assert hidet.option.get_parallel_build()",
            "get_num_local_workers": "assert hidet.option.get_num_local_workers() is None",
            "get_save_lower_ir": "assert not hidet.option.get_save_lower_ir()",
            "bench_config": "hidet.option.bench_config(1, 5, 5); assert hidet.option.get_bench_config() == (1, 5, 5)",
            "get_bench_config": "assert hidet.option.get_bench_config() == (3, 10, 3)",
            "is_fix_gpu_frequency_for_tuning": "assert not hidet.option.is_fix_gpu_frequency_for_tuning()",
            "get_runtime_check": "assert hidet.option.get_runtime_check()",
            "get_execution_mode": "assert hidet.option.get_execution_mode() == 'compilation'",
            "get_parallel_k": "assert hidet.option.get_parallel_k() == 'default'",
            "parallel_k": "hidet.option.parallel_k('disabled'); assert hidet.option.get_option('gpu.split_k') == 1",
            "is_use_torch_stream": "assert hidet.option.is_use_torch_stream()",
            "is_option_exist": "assert hidet.option.is_option_exist('search_space')",
            "context": "with hidet.option.context() as ctx: ctx.set_option('search_space', 0)",
            "get_option": "assert hidet.option.get_option('cuda.arch') == 'auto'",
            **{
                name: (
                    f"hidet.option.{name}(True); "
                    "from hidet import dtypes; from hidet.ir import build, expr, func, printer; "
                    "a, b = (expr.Var('v', dtypes.i32) for _ in range(2)); "
                    "shown = printer.print_function(func.Function('f', (a, b), build.seq([]))); "
                    "assert 'v: i32, v_1: i32' in shown"
                )
                for name in ("debug_enable_var_id", "debug_show_var_id")
            },
            "debug_dump_graph_visual": (
                "hidet.option.cache_dir('here'); hidet.option.debug_dump_graph_visual(); hidet.graph.optimize(graph); "
                "assert list(Path('here/graphs').glob('main_*.json'))"
            ),
            "register_option": (
                "hidet.option.register_option('of.mine', default_value=3); hidet.option.set_option('of.mine', 4); "
                "assert hidet.option.get_option('of.mine') == 4; del hidet.option.of"
            ),
            "cuda.build.use_ftz": "hidet.option.cuda.build.use_ftz(True); assert hidet.option.get_option('cuda.ftz')",
            "cuda.build.use_prec_div": (
                "hidet.option.cuda.build.use_prec_div(False); assert hidet.option.get_option('cuda.prec_div') is False"
            ),
            "cuda.get_arch_pair": "hidet.option.cuda.arch('sm_80'); assert hidet.option.cuda.get_arch_pair() == (8, 0)",
            "cuda.cpu_arch": "hidet.option.cuda.cpu_arch('haswell'); assert hidet.option.cpu.get_arch() == 'haswell'",
        },
        warns={
            "parallel_tune": "hidet.option.parallel_tune(4)",
            "fix_gpu_frequency_for_tuning": "hidet.option.fix_gpu_frequency_for_tuning(True)",
            "debug_cache_tuning": "hidet.option.debug_cache_tuning()",
            "debug_show_verbose_flow_graph": "hidet.option.debug_show_verbose_flow_graph()",
            "hexcute_matmul": "hidet.option.hexcute_matmul('disable')",
            "compile_server.addr": "hidet.option.compile_server.addr('10.0.0.1')",
            "compile_server.port": "hidet.option.compile_server.port(80)",
            "compile_server.enable": "hidet.option.compile_server.enable()",
            "compile_server.username": "hidet.option.compile_server.username('me')",
            "compile_server.password": "hidet.option.compile_server.password('secret')",
            "compile_server.repo": "hidet.option.compile_server.repo('https://example.org', version='main')",
            "compile_server.num_workers": "hidet.option.compile_server.num_workers(4)",
            "internal.torch_api_use_example_input_shapes": (
                "hidet.option.internal.torch_api_use_example_input_shapes(True)"
            ),
            "internal.dispatch_table.set_split_points": "hidet.option.internal.dispatch_table.set_split_points([1, 8])",
        },
        notes={
            "cache_dir": "holds for what is compiled later in this thread or task",
            "num_local_workers": "processes that compile beside this one; 0 is this one alone",
            "save_lower_ir": "the folder `ir` of the cache directory; `hidet.option.dump(directory)` says where",
            "cuda.arch": "the machine that is compiled for where a target is named without one",
            "runtime_check": "arguments are always checked; False warns",
            "execution_mode": "operators on tensors are compiled; others warn",
            "use_torch_stream": "kernels run on torch's stream; False warns",
            "set_option": "takes names of all settings, those that warn too",
        },
        doc="Those that warn, and their getters, are of the wheel `hidet-compat`.",
    ),
    Group(
        "hidet.torch.dynamo_config",
        acts={
            "use_tensor_core": "hidet.torch.dynamo_config.use_tensor_core(True)",
            "use_cuda_graph": "hidet.torch.dynamo_config.use_cuda_graph(False)",
            "print_input_graph": "hidet.torch.dynamo_config.print_input_graph(False)",
            "dump_graph_ir": "hidet.torch.dynamo_config.dump_graph_ir('dumped')",
            "correctness_report": "hidet.torch.dynamo_config.correctness_report(False)",
            "use_fp16": (
                "hidet.torch.dynamo_config.use_fp16(True); "
                "y = torch.compile(torch.nn.Linear(8, 8), backend='hidet')(torch.randn(4, 8)).detach(); "
                "assert torch.equal(y, y.half().float())"
            ),
            **{
                name: (
                    "from hidet.torch.settings import torch_options; "
                    f"hidet.torch.dynamo_config.{name}({given}); assert torch_options(None, None).{option} {value}"
                )
                for name, given, option, value in (
                    ("use_fp16_reduction", "True", "plugin_options['cuda.fp16_accumulation']", "is True"),
                    ("use_attention", "False", "plugin_options['compat.attention']", "is False"),
                    ("parallel_k", "'disabled'", "plugin_options['gpu.split_k']", "== 1"),
                    ("steal_weights", "True", "freeze", "is True"),
                )
            },
            "reset": "assert hidet.torch.dynamo_config.use_fp16().reset() is hidet.torch.dynamo_config",
        },
        present="search_space",
        notes={
            "use_fp16": "see [Mixed precision](mixed-precision.md); needs `hidet-compat`",
            "use_attention": "False takes attention apart; needs `hidet-compat`",
            "steal_weights": "option `freeze`",
        },
    ),
    Group(
        "hidet.frontend",
        acts={
            "from_onnx": (
                "from onnx import helper as h; node = h.make_node('Tanh', ['data'], ['out']); "
                "given, made = (h.make_tensor_value_info(name, 1, [2, 3]) for name in ('data', 'out')); "
                "model = hidet.frontend.from_onnx(h.make_model(h.make_graph([node], 'g', [given], [made]))); "
                "assert (model.input_names, model.output_names) == (['data'], ['out']); "
                "assert hidet.trace_from(model(s))(x).tolist() == model(x).tolist()"
            ),
            "from_torch": (
                "model = hidet.frontend.from_torch(torch.nn.Tanh()); "
                "assert hidet.trace_from(model(s))(x).tolist() == model(x).tolist()"
            ),
        },
        notes={
            "from_onnx": "of `hidet-onnx`; `hidet.compile(path)` compiles it at once",
            "from_torch": 'of `hidet-torch`, for known sizes; `torch.compile(backend="hidet")` takes all',
        },
    ),
    Group(
        "hidet.runtime",
        acts={
            "save_compiled_graph": "hidet.runtime.save_compiled_graph(graph.build(), 'saved.hidet')",
            "load_compiled_task": TASK
            + (
                "hidet.drivers.build_task(Twice(x).task, 'cpu').save('task.hidet')\n"
                "assert hidet.runtime.load_compiled_task('task.hidet')(x.numpy()).tolist() == (x + x).tolist()"
            ),
            "Storage": "assert hidet.runtime.Storage.new('cpu', 8).as_array(2, 'float32').shape == (2,)",
            "storage": "assert 'cpu' in str(hidet.runtime.storage.current_memory_pool('cpu'))",
        },
        present="BackendException CompiledGraph CompiledModule CompiledFunction load_compiled_graph CompiledTask",
        refused={
            "load_compiled_module": "hidet.runtime.load_compiled_module('module')",
        },
        notes={
            "Storage": "`Tensor.storage` is a numpy array, or an array of the device's target",
            "load_compiled_module": "building a module again takes its code from the kernel cache",
        },
    ),
    Group(
        "hidet.utils",
        acts={
            "cdiv": "assert hidet.utils.cdiv(7, 4) == 2",
            "gcd": "assert hidet.utils.gcd(12, 18) == 6",
            "lcm": "assert hidet.utils.lcm(4, 6) == 12",
            "factorize": "assert hidet.utils.factorize(6) == [1, 2, 3, 6]",
            "Timer": "with hidet.utils.Timer() as timer: pass\nassert timer.elapsed_seconds() >= 0",
            "cache_dir": "hidet.option.cache_dir('.'); assert hidet.utils.cache_dir('a').endswith('a')",
            "cache_file": "hidet.option.cache_dir('.'); assert hidet.utils.cache_file('a', 'b').endswith('b')",
            "clear_op_cache": ADD
            + (
                "import hidet.cache; hidet.option.cache_dir('.'); m.build()\n"
                "found = hidet.cache.open_cache(directory='.')\n"
                "assert found.status().entries; hidet.utils.clear_op_cache(); assert not found.status().entries"
            ),
            "clear_cache_dir": (
                "import os; hidet.option.cache_dir('.'); path = hidet.utils.cache_dir('a')\n"
                "hidet.utils.clear_cache_dir('a'); assert not os.path.exists(path)"
            ),
            "assert_close": "hidet.utils.assert_close(x, x)",
            "same_list": "assert hidet.utils.same_list([1], [1])",
            "prod": "assert hidet.utils.prod([2, 3]) == 6",
            "benchmark_func": "hidet.utils.benchmark_func(lambda: None, warmup=0, number=1, repeat=1)",
            "benchmark": "hidet.utils.benchmark.benchmark_func(lambda: None, warmup=0, number=1, repeat=1)",
            "netron": "with open('g.json', 'w') as file: hidet.utils.netron.dump(graph, file)",
        },
        notes={"netron": "JSON that the viewer Netron opens as a model of ONNX"},
    ),
    Group(
        "hidet.cuda",
        present=(
            "available device_count synchronize properties compute_capability set_device current_device "
            "memory_info Stream ExternalStream Event stream current_stream default_stream malloc free memcpy memset "
            "profiler_start profiler_stop graph"
        ),
        refused={"cublas": "hidet.cuda.cublas.gemm", "cudnn": "hidet.cuda.cudnn.conv2d"},
        notes={"malloc": "`hidet.empty(shape, device='cuda')` gives itself back"},
    ),
)

ALL_GROUPS = (*GROUPS, *GROUPS_OF_KERNELS)


def names() -> list[Name]:
    """Every row."""
    return [name for group in ALL_GROUPS for name in group.names()]


_HEAD = """# Coming from hidet 0.6

What became of the public names of the distribution `hidet`, which has the same module name. Every row is tested: a name
that acts is there and is called, one that warns or is refused says what to use instead. `examples/gallery` has scripts
that use them.

"""


def page() -> str:
    """The text of `docs/coming-from-hidet.md`."""
    counts = {state: sum(name.state is state for name in names()) for state in State}
    total = sum(counts.values())
    lines = ["| state | names |", "|---|---|"]
    lines += [f"| {state} | {count} of {total} |" for state, count in counts.items()]
    for group in ALL_GROUPS:
        lines += ["", f"## `{group.path}`", *([group.doc] if group.doc else []), ""]
        rows = list(group.names())
        for state in State:
            plain = [name.path.rpartition(".")[2] for name in rows if name.state is state]
            if plain:
                lines.append(f"{state.capitalize()}: {', '.join(f'`{name}`' for name in plain)}.\n")
        told = [name for name in rows if name.note]
        if told:
            lines += ["| name | now |", "|---|---|"]
            lines += [f"| `{name.path.rpartition('.')[2]}` | {name.note} |" for name in told]
    return _HEAD + "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
