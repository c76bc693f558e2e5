"""What became of names of hidet 0.6 that kernels, operators and rules of users are made with; see `names_of_hidet`."""

from __future__ import annotations

from tests.name_rows import Group

TASK = """
from hidet.ir.compute import compute, reduce, tensor_input
class Twice(hidet.graph.Operator):
    def __init__(self, x):
        a = tensor_input("a", x.dtype, x.shape)
        task = hidet.ir.Task("twice", [a], [compute("c", x.shape, lambda i, j: a[i, j] * 2.0)])
        super().__init__([x], {}, task)
"""
"""An operator that a use may name."""

ADD = """
with hidet.script_module() as m:
    @hidet.script
    def add(a: hidet.lang.f32, b: hidet.lang.f32) -> hidet.lang.f32:
        return a + b * 2.0
"""
"""A module of scripts that a use may name."""

VISITOR = (
    ADD
    + """
found = []
class Find(hidet.ir.functors.IRVisitor):
    def visit_Const(self, number): found.append(number.value)
Find()(m.ir_module())
"""
)

BUILDER = """
with hidet.ir.FunctionBuilder("grow", kind="cpu_kernel") as fb:
    v = hidet.ir.expr.tensor_var("v", [1], "float32")
    fb.extend_params([v])
    fb.buffer_store(v, [0], v[0] + 1)
"""

KERNEL = """
with hidet.script_module() as m:
    @hidet.script
    def kernel(a: hidet.lang.f32[64]):
        hidet.lang.attrs.func_kind = "cuda_kernel"
        hidet.lang.attrs.func_name = "scale"
        hidet.lang.attrs.cuda.grid_dim = 2
        hidet.lang.attrs.cuda.block_dim = 32
        hidet.lang.attrs.cuda.cluster_dim = 2
        hidet.lang.attrs.cuda.dynamic_smem_bytes = 64
        hidet.lang.attrs.cuda.min_blocks = 2
        a[0] = 1.0
launch = kernel.launch
def text(extents): return [extent.value for extent in extents]
"""

MODEL = """
class Doubled(hidet.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = hidet.nn.Linear(3, 3)
    def forward(self, x): return self.inner(x) * 2.0
model = Doubled()
"""

REGISTRY = """
from hidet.graph.frontend.torch.registry import *
class Four(HidetModule):
    def __call__(self, x): return x * 4.0
def run(function):
    torch.compiler.reset()
    return torch.compile(lambda x: function(x), backend="hidet")(torch.ones(1)).tolist()
"""

COMPUTE = """
from hidet.ir.compute import *
a = tensor_input("a", "float32", [2, 3])
def of(node): return hidet.drivers.build_task(hidet.Task("t", [a], [node]), "cpu")(x).tolist()
"""

TUNE = (
    ADD
    + """
from hidet.ir.library import tune
numbers = []
@tune.space(1, n=[1, 2, 3])
def schedule(n=1):
    tune.check(n < 3)
    numbers.append(n)
    return m.ir_module()
def made(level):
    hidet.option.search_space(level)
    return tune.extract_ir_modules(schedule)
def seen(level): return made(level) and numbers
"""
)

SIZES = {
    "i8": 1,
    "i16": 2,
    "i32": 4,
    "i64": 8,
    "u8": 1,
    "u16": 2,
    "u32": 4,
    "u64": 8,
    "f16": 2,
    "f32": 4,
    "f64": 8,
    "bf16": 2,
    "tf32": 4,
    "f8e4m3": 1,
    "f8e5m2": 1,
    "c64": 8,
    "c128": 16,
    "f16x1": 2,
    "f16x2": 4,
    "f16x4": 8,
    "f16x8": 16,
    "f32x1": 4,
    "f32x2": 8,
    "f32x4": 16,
    "f32x8": 32,
    "bf16x2": 4,
    "i8x4": 4,
    "u8x4": 4,
}
"""Bytes of types of scripts."""

PATTERN = """
from hidet.graph.transforms import *
from hidet.graph.ops.activation import ReluOp
from hidet.graph.ops.arithmetic import AddOp
y = hidet.ops.relu(s) + 1.0
symbolic, constant = TensorPattern(is_symbolic=True), TensorPattern(is_const=True)
shifted = op_pattern(AddOp, [op_pattern(ReluOp, [symbolic]), constant])
class Shift(SubgraphRewriteRule):
    def source(self): return [shifted]
    def target(self, matched): return [hidet.ops.maximum(matched[symbolic] + matched[constant], matched[constant])]
rule = Shift("relu(x) + c -> max(x + c, c)")
"""
"""A rule for graphs that a use may name."""

GROUPS = (
    Group(
        "hidet.graph.transforms",
        acts={
            "TensorPattern": PATTERN + "assert symbolic.fits(s) and not constant.fits(s) and constant.fits(x)",
            "op_pattern": PATTERN + "assert graph_pattern_match(shifted, y)[0][symbolic] is s",
            "graph_pattern_match": PATTERN + "assert graph_pattern_match(shifted, s)[0] == {}",
            "MatchDict": PATTERN + "assert isinstance(graph_pattern_match(shifted, y)[0], dict)",
            "SubgraphRewriteRule": PATTERN + "assert rule.name.startswith('relu') and rule.source() == [shifted]",
            "register_rewrite_rule": PATTERN
            + (
                "register_rewrite_rule(rule); after = str(hidet.graph.optimize(hidet.trace_from(y)))\n"
                "clear_registered_rewrite_rules(); assert 'FusedMaximum' in after"
            ),
            "deregister_rewrite_rule": PATTERN
            + (
                "register_rewrite_rule(rule); deregister_rewrite_rule(rule.name); assert not registered_rewrite_rules()"
            ),
            "registered_rewrite_rules": PATTERN
            + (
                "register_rewrite_rule(rule); known = registered_rewrite_rules(); clear_registered_rewrite_rules()\n"
                "assert known == [rule]"
            ),
            "clear_registered_rewrite_rules": PATTERN
            + ("register_rewrite_rule(rule); clear_registered_rewrite_rules(); assert not registered_rewrite_rules()"),
            "subgraph_rewrite_pass": PATTERN
            + (
                "register_rewrite_rule(rule); after = subgraph_rewrite_pass()(hidet.trace_from(y))\n"
                "clear_registered_rewrite_rules(); assert [node.name for node in after.nodes] == ['add', 'maximum']"
            ),
            "ResolveRule": PATTERN + "assert ResolveRule().get_config('search_space') == 0",
            "register_resolve_rule": PATTERN
            + (
                "@register_resolve_rule(ReluOp)\n"
                "class Clip(ResolveRule):\n"
                "    def resolve(self, op): return [hidet.ops.maximum(op.inputs[0], 0.0)]\n"
                "after = resolve_variant_pass()(hidet.trace_from(y)); clear_registered_resolve_rules()\n"
                "assert [node.name for node in after.nodes] == ['maximum', 'add']"
            ),
            "resolve_variant_pass": PATTERN
            + ("without = hidet.trace_from(y); assert resolve_variant_pass()(without) is without"),
        },
        doc="Rules that are registered hold for all graphs that are optimised or compiled in the process.",
    ),
    Group(
        "hidet.graph.frontend.torch.registry",
        acts={
            "Registry": REGISTRY + "assert torch.tanh in Registry.registered_functions",
            "register_function": REGISTRY
            + (
                "register_function(torch.tanh)(lambda x: x * 2.0); found = run(torch.tanh)\n"
                "Registry.registered_functions.clear(); assert found == [2.0]"
            ),
            "register_method": REGISTRY
            + (
                "register_method(torch.Tensor.tanh)(lambda x: x * 3.0); found = run(lambda x: x.tanh())\n"
                "Registry.registered_methods.clear(); assert found == [3.0]"
            ),
            "register_module": REGISTRY
            + (
                "register_module(torch.nn.Tanh)(Four)\n"
                "found = hidet.frontend.from_torch(torch.nn.Tanh())(one).tolist()\n"
                "Registry.registered_modules.clear(); assert found == [28.0]"
            ),
            "HidetModule": REGISTRY + "assert Four(torch.nn.Linear(2, 3)).param('weight').shape == (3, 2)",
        },
        notes={"register_module": "modules of `hidet.frontend.from_torch`; torch.compile takes modules apart itself"},
        doc="What is registered stands for functions of torch in graphs that are compiled later.",
    ),
    Group(
        "hidet.lang",
        acts={
            "range": ADD.replace("return a", "for i in hidet.lang.range(3): a += 1.0\n        return a")
            + "assert m.build()(1.0, 2.0) == 8.0",
            "BaseType": "assert isinstance(hidet.lang.f32, hidet.lang.BaseType)",
            "DataType": "assert isinstance(hidet.lang.f32, hidet.lang.DataType)",
            "TensorType": "assert isinstance(hidet.lang.f32[3], hidet.lang.TensorType)",
            "PointerType": "assert str(hidet.lang.PointerType('float32')) == str(~hidet.lang.f32)",
            "VoidType": "assert isinstance(hidet.lang.void, hidet.lang.VoidType)",
            "ReferenceType": "assert not isinstance(hidet.lang.f32, hidet.lang.ReferenceType)",
            "data_type": "assert hidet.lang.data_type('bf16') == hidet.lang.bf16",
            "Expr": "assert isinstance(hidet.lang.Var('v', 'int32') + 1, hidet.lang.Expr)",
            "Var": "assert isinstance(hidet.lang.Var('v', 'int32'), hidet.lang.Var)",
            "Dereference": (
                "v = hidet.ir.expr.tensor_var('v', [4])\nassert isinstance(v[1].expr, hidet.lang.Dereference)"
            ),
            "DataLayout": "assert isinstance(hidet.lang.layout.row_major(4), hidet.lang.DataLayout)",
            "ForStmtAttr": "assert hidet.lang.ForStmtAttr.parse('pu')[0].parallel",
            "Function": ADD + "assert isinstance(add, hidet.lang.Function)",
        },
        present=(
            "attrs attr script script_module tensor tensor_pointer as_tensor_pointer register_tensor "
            "shared_tensor grid printf cast view deref address bitwise_not asm spatial repeat auto_map "
            "row_spatial row_repeat col_spatial col_repeat TaskMapping DeclareScope meta types mapping layout "
            "cuda cpu void i1 u1 i2 u2 i4 u4 i8 i16 i32 i64 u8 u16 u32 u64 f16 f32 f64 bf16 tf32 f16x2 float16x2 "
            "bfloat16x2 f32x2 float32x2 void_p int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 "
            "float64 boolean bfloat16 tfloat32 float8_e4m3 float8_e5m2 tensor_type __builtin_assume"
        ),
        notes={"range": "Python's own in a script, with start and step"},
    ),
    Group(
        "hidet.lang.attrs",
        acts={
            "func_kind": KERNEL + "assert m.ir_module().function('scale').kind == 'kernel'",
            "func_name": KERNEL + "assert [script.name for script in m.functions] == ['scale']",
            "cuda.grid_dim": KERNEL + "assert text(launch.grid) == [2]",
            "cuda.block_dim": KERNEL + "assert text(launch.block) == [32]",
            "cuda.cluster_dim": KERNEL + "assert text(launch.cluster) == [2]",
            "cuda.dynamic_smem_bytes": KERNEL + "assert launch.shared_bytes.value == 64",
            "cuda.min_blocks": KERNEL + "assert ('min_blocks', 2) in m.ir_module().function('scale').attributes",
        },
    ),
    Group(
        "hidet.lang.script_module",
        acts={
            "ir_module": ADD + "assert m.ir_module().entry == 'add'",
            "build": ADD + "assert m.build()(1.0, 2.0) == 5.0",
            "define_global_var": "assert hidet.script_module().define_global_var('v', hidet.lang.f32[4]).shape == (4,)",
        },
        notes={"define_global_var": "kept between calls of what `build` gives"},
    ),
    Group(
        "hidet.runtime.CompiledModule",
        acts={
            "__call__": ADD + "assert m.build()(a=1.0, b=2.0) == 5.0",
            "__getitem__": ADD + "assert m.build()['add'](1.0, 2.0) == m.build()['launch'](1.0, 2.0) == 5.0",
            "source": ADD + "assert 'fadd' in m.build().source() and m.build().source(color=True)",
            "profile": ADD + "assert len(m.build().profile(1.0, 2.0, repeat=3)) == 3",
        },
    ),
    Group(
        "hidet.lang.types",
        acts={
            **{name: f"assert hidet.lang.types.{name}.nbytes == {size}" for name, size in SIZES.items()},
            **{
                name: f"t = hidet.lang.types.{name}.type; assert not t.is_float and t.bits == {int(name[1])}"
                for name in ("i1", "i2", "i4", "u1", "u2", "u4")
            },
            **{
                name: f"t = hidet.lang.types.{name}.type; assert t.lanes == 8 and t.dtype.bits == 4"
                for name in ("i4x8", "u4x8")
            },
            "boolean": "assert hidet.lang.types.boolean.type.is_bool",
            "vectorize": "assert hidet.lang.types.vectorize('float32', 4) == hidet.lang.types.f32x4",
            "void": "assert isinstance(hidet.lang.types.void, hidet.ir.VoidType)",
            "void_p": "assert isinstance(hidet.lang.types.void_p, hidet.ir.PointerType)",
            "byte_p": "assert str(hidet.lang.types.byte_p) == '~u8'",
        },
        notes={"i4x8": "elements below 8 bits take a byte each in memory"},
    ),
    Group(
        "hidet.lang.mapping",
        acts={
            "spatial": "assert hidet.lang.mapping.spatial(2, 3).num_workers == 6",
            "repeat": "assert hidet.lang.mapping.repeat(2, 3).map(0) == [(i, j) for i in range(2) for j in range(3)]",
            "auto_map": "assert hidet.lang.mapping.auto_map(4, 8, workers=8).task_shape == (4, 8)",
            "predicated_auto_map": "assert len(hidet.lang.mapping.predicated_auto_map(3, 5, workers=4)) == 2",
            "col_spatial": "assert hidet.lang.mapping.col_spatial(2, 3).map(1) == [(1, 0)]",
            "col_repeat": "assert hidet.lang.mapping.col_repeat(2, 2).map(0)[1] == (1, 0)",
            "row_spatial": "assert hidet.lang.mapping.row_spatial(2, 3).map(1) == [(0, 1)]",
            "row_repeat": "assert hidet.lang.mapping.row_repeat(2, 2).map(0)[1] == (0, 1)",
            "chain": (
                "M = hidet.lang.mapping\nassert M.chain(M.spatial(2, 2), M.repeat(1, 2)).map(3) == [(1, 2), (1, 3)]"
            ),
            "TaskMapping": "assert isinstance(hidet.lang.mapping.spatial(2), hidet.lang.mapping.TaskMapping)",
        },
    ),
    Group(
        "hidet.lang.layout",
        acts={
            "row_major": "assert hidet.lang.layout.row_major(2, 3)(1, 2) == 5",
            "column_major": "assert hidet.lang.layout.column_major(2, 3)(1, 2) == 5",
            "row_layout": "assert hidet.lang.layout.row_layout(2, 3)(1, 0) == 3",
            "col_layout": "assert hidet.lang.layout.col_layout(2, 3)(1, 0) == 1",
            "local_layout": "assert hidet.lang.layout.local_layout(2, 3)(1, 2) == 0",
            "strided_layout": "assert hidet.lang.layout.strided_layout([2, 3], ranks=[1, 0])(1, 0) == 1",
        },
    ),
    Group(
        "hidet.lang.cpu",
        present=(
            "avx_f32x4_load avx_f32x4_load_aligned avx_f32x4_store avx_f32x4_store_aligned avx_f32x4_setzero "
            "avx_f32x4_broadcast avx_f32x4_fmadd avx_f32x8_load avx_f32x8_load_aligned avx_f32x8_store "
            "avx_f32x8_store_aligned avx_f32x8_setzero avx_f32x8_broadcast avx_f32x8_fmadd avx_f32x8_unpacklo "
            "avx_f32x8_unpackhi avx_f32x8_shuffle avx_f32x8_permute2f32x4 avx_f32x8_insert_f32x4 avx_f32x8_cast_f32x4"
        ),
        doc="Vectors by the names of AVX's intrinsics; they compile for every CPU.",
    ),
    Group(
        "hidet.lang.cuda",
        present=(
            "threadIdx blockIdx blockDim gridDim this_cluster dynamic_shared_memory syncthreads syncthreads_and "
            "syncthreads_count syncthreads_or syncwarp MmaConfig mma_sync ldmatrix cvta_generic_to_shared "
            "cp_async cp_async_commit_group cp_async_wait_group cp_async_wait_all load store nano_sleep "
            "atomic_add atomic_sub atomic_min atomic_max atomic_exchange atomic_cas shfl_sync shfl_up_sync "
            "shfl_xor_sync shfl_down_sync acquire_lock release_lock acquire_seq_semaphore release_seq_semaphore "
            "WgmmaConfig wgmma_async make_wgmma_desc wgmma_fence wgmma_commit_group wgmma_wait_group "
            "register_tensor shared_tensor setmaxnreg contexts set_kernel_max_dynamic_smem_bytes memcpy memcpy_async "
            "fast_intdiv fast_intmod"
        ),
        refused={"cublas": "hidet.lang.cuda.cublas.gemm"},
        notes={
            "memcpy": "between places of one device, in the order of launches",
            "set_kernel_max_dynamic_smem_bytes": "launches reserve what `attrs.cuda.dynamic_smem_bytes` says",
        },
    ),
    Group(
        "hidet.ir",
        acts={
            "IRModule": ADD + "assert isinstance(m.ir_module(), hidet.ir.IRModule)",
            "Function": ADD + "assert isinstance(add, hidet.ir.Function) and not isinstance(m, hidet.ir.Function)",
            "Node": ADD + "assert isinstance(add.function.body, hidet.ir.Node)",
            "Stmt": ADD + "assert isinstance(add.function.body, hidet.ir.Stmt)",
            "BaseType": "assert isinstance(hidet.float32, hidet.ir.BaseType) and not isinstance(1, hidet.ir.BaseType)",
            "DataType": "assert isinstance(x.dtype, hidet.ir.DataType) and isinstance(hidet.int8, hidet.ir.DataType)",
            "TensorType": "assert isinstance(hidet.float32[2, 3], hidet.ir.TensorType)",
            "TensorPointerType": "assert isinstance(hidet.float32[2, 3], hidet.ir.TensorPointerType)",
            "PointerType": "assert isinstance(~hidet.float32, hidet.ir.PointerType)",
            "VoidType": "assert isinstance(hidet.lang.void, hidet.ir.VoidType)",
            "FuncType": "assert hidet.ir.FuncType((hidet.int8,)).param_types == (hidet.int8,)",
            "data_type": "assert hidet.ir.data_type('float16') == hidet.float16",
            "tensor_type": "assert hidet.ir.tensor_type('float32', [2, 3]).shape == (2, 3)",
            "tensor_pointer_type": "assert hidet.ir.tensor_pointer_type('float32', [2]).shape == (2,)",
            "Expr": "assert isinstance(hidet.ir.Var('v', 'int32') + 1, hidet.ir.Expr)",
            "Var": (
                "v = hidet.ir.Var('v', 'int32')\n"
                "assert isinstance(v, hidet.ir.Var) and not isinstance(v + 1, hidet.ir.Var)"
            ),
            "SymbolVar": "assert isinstance(hidet.symbol_var('n'), hidet.ir.SymbolVar)",
            "Constant": "assert isinstance(hidet.ir.Constant(1, 'int32'), hidet.ir.Constant)",
            "infer_type": "assert hidet.ir.infer_type(hidet.ir.Var('v', 'float16') * 2.0) == hidet.float16",
            "DataLayout": "assert isinstance(hidet.lang.layout.row_major(2, 3), hidet.ir.DataLayout)",
            "TaskMapping": "assert isinstance(hidet.lang.spatial(2, 3), hidet.ir.TaskMapping)",
            "FunctionBuilder": BUILDER
            + "hidet.driver.build_ir_module(hidet.ir.IRModule([fb.get()]))(one); assert one.item() == 8.0",
            "StmtBuilder": "sb = hidet.ir.StmtBuilder(); sb.brk(); assert isinstance(sb.finish(), hidet.ir.Stmt)",
            "Task": TASK + "assert 'twice(a: float32[2, 3])' in str(Twice(x).task)",
            "TensorNode": TASK + "assert isinstance(Twice(x).task.inputs[0], hidet.ir.TensorNode)",
            "ScalarNode": TASK + "assert isinstance(reduce([3], lambda i: i, 'sum'), hidet.ir.ScalarNode)",
            "compute": "assert hidet.ir.compute.tensor_input('a', 'float32', [2, 3]).shape == (2, 3)",
            "task": "assert hidet.ir.task.Task is hidet.Task",
            "type": "assert hidet.ir.type.data_type is hidet.ir.data_type",
            "dtypes": "assert hidet.ir.dtypes.promote_type('int32', 'float16') == hidet.float16",
            "primitives": (
                "power = hidet.ir.primitives.exp(hidet.ir.Var('v', 'float32'))\n"
                "assert hidet.ir.infer_type(power) == hidet.float32"
            ),
            "functors": VISITOR + "assert found == [2.0]",
            "builders": "assert hidet.ir.builders.FunctionBuilder is hidet.ir.FunctionBuilder",
            "layout": "assert hidet.ir.layout.row_layout(2, 3)(1, 2) == 5",
            "mapping": "assert hidet.ir.mapping.spatial_map(2, 3).num_workers == 6",
            "expr": (
                "chosen = hidet.ir.expr.if_then_else(hidet.ir.Var('v', 'int32') < 3, 1, 2)\n"
                "assert isinstance(chosen, hidet.ir.Expr)"
            ),
            "save_task": TASK
            + "hidet.ir.save_task(Twice(x).task, 'a'); assert hidet.ir.load_task('a').name == 'twice'",
            "load_task": TASK
            + "hidet.ir.save_task(Twice(x).task, 'b'); assert hidet.ir.load_task('b').inputs[0].shape",
            "polinomial": (
                "a, b = hidet.ir.expr.index_vars(['a', 'b']); of = hidet.ir.polinomial.from_expr_to_poli\n"
                "assert of(a * (b + 1)) == of(a + b * a)"
            ),
            "stmt": "assert issubclass(hidet.ir.stmt.For, hidet.ir.Stmt)",
            "func": "assert hidet.ir.func.IRModule is hidet.ir.IRModule",
        },
        notes={
            "Task": "rules of targets schedule it; `implement_cpu` and `implement_cuda` give programs of their own",
            "Expr": "sizes that are known at run time only are some, too",
            "functors": "methods are named after the classes of `hidet.ir.expr` and `hidet.ir.stmt`",
            "FunctionBuilder": "`hidet.script` is the shorter way",
        },
        doc="Over the thread IR, whose classes are others, and whose text form parses back: see [Thread IR](ir.md).",
    ),
    Group(
        "hidet.ir.compute",
        acts={
            "tensor_input": COMPUTE + "assert repr(a) == 'a: float32[2, 3]'",
            "scalar_input": COMPUTE + "assert scalar_input('s', 'float32').shape == ()",
            "compute": COMPUTE
            + "assert of(compute('c', [2, 3], lambda i, j: a[i, j] + i))[1] == (x[1] + 1.0).tolist()",
            "reduce": COMPUTE
            + (
                "c = compute('c', [2], lambda i: reduce([3], lambda j: a[i, j], 'sum'))\n"
                "assert of(c) == x.sum(1).tolist()"
            ),
            "arg_reduce": COMPUTE
            + ("c = compute('c', [2], lambda i: arg_reduce(3, lambda j: a[i, j], 'max')); assert of(c) == [2, 1]"),
        },
        notes={"reduce": "floats of 16 bits are summed in `accumulate_dtype`, others in their own type"},
    ),
    Group(
        "hidet.ir.library.tune",
        acts={
            name: TUNE + use
            for name, use in {
                "space": "assert len(made(1)) == 2",
                "extract_ir_modules": "assert len(made(0)) == 1",
                "check": "assert seen(1) == [1, 2]",
                "metric": (
                    "import io, logging; out = io.StringIO(); handler = logging.StreamHandler(out)\n"
                    "log = logging.getLogger('hidet'); level = log.level; log.setLevel(10); log.addHandler(handler)\n"
                    "tune.metric('bytes', 4096); log.removeHandler(handler); log.setLevel(level)\n"
                    "assert 'bytes = 4096' in out.getvalue()"
                ),
            }.items()
        },
        doc="Programs of `implement_cpu` and `implement_cuda`, of which the fastest is taken.",
    ),
    Group(
        "hidet.graph.ops",
        acts={
            "matmul.MatmulOp": (
                "from hidet.graph.ops.matmul import MatmulOp\n"
                "assert isinstance(hidet.ops.matmul(s, s.transpose(0, 1)).op, MatmulOp)"
            ),
            "transform.ConcatOp": (
                "from hidet.graph.ops.transform import ConcatOp\n"
                "assert isinstance(hidet.ops.concat([s, s], 0).op, ConcatOp)"
            ),
            "arithmetic.PowOp": (
                "from hidet.graph.ops.arithmetic import PowOp\n"
                "assert PowOp(x, x * 0.0).outputs[0].tolist()[0][0] == 1.0"
            ),
            "utils.input_like": (
                "from hidet.graph.ops.utils import input_like\nassert input_like(x, 'a').shape == (2, 3)"
            ),
        },
        doc="`hidet.ops` by another name, with classes for patterns and rules.",
    ),
    Group(
        "hidet.drivers",
        acts={
            "build_ir_module": ADD + "assert hidet.drivers.build_ir_module(m.ir_module())(1.0, 2.0) == 5.0",
            "build_task": TASK
            + "assert hidet.drivers.build_task(Twice(x).task, 'cpu')(x).tolist() == (x + x).tolist()",
            "build_task_batch": TASK + "assert len(hidet.drivers.build_task_batch([(Twice(x).task, 'cpu')])) == 1",
            "build_ir_module_batch": ADD
            + "(f,) = hidet.drivers.build_ir_module_batch([m.ir_module()]); assert f(1.0, 2.0) == 5.0",
        },
    ),
    Group("hidet.driver", present="build_ir_module"),
    Group(
        "hidet.nn",
        acts={
            "Module": MODEL + "assert [name for name, _ in model.named_parameters()] == ['inner.weight', 'inner.bias']",
            "Sequential": "assert hidet.nn.Sequential(hidet.nn.Relu(), hidet.nn.Tanh())(-one).tolist() == [0.0]",
            "ModuleList": "assert len(hidet.nn.ModuleList([hidet.nn.Relu()])) == 1",
            "Linear": "assert hidet.nn.Linear(3, 4)(x).shape == (2, 4)",
            "LinearTransposed": "assert hidet.nn.LinearTransposed(3, 4).weight.shape == (4, 3)",
            "Conv2d": "assert hidet.nn.Conv2d(3, 4, 3, padding=1)(hidet.zeros([1, 3, 5, 5])).shape == (1, 4, 5, 5)",
            "BatchNorm2d": "assert hidet.nn.BatchNorm2d(3)(hidet.zeros([1, 3, 2, 2])).shape == (1, 3, 2, 2)",
            "LayerNorm": "assert abs(hidet.nn.LayerNorm(3)(x).mean().item()) < 1e-5",
            "GroupNorm": "assert abs(hidet.nn.GroupNorm(1, 3)(x).mean().item()) < 1e-5",
            "MaxPool2d": "assert hidet.nn.MaxPool2d(2, 2)(hidet.zeros([1, 1, 4, 4])).shape == (1, 1, 2, 2)",
            "AvgPool2d": "assert hidet.nn.AvgPool2d(2, 2)(hidet.ones([1, 1, 2, 2])).item() == 1.0",
            "AdaptiveAvgPool2d": "assert hidet.nn.AdaptiveAvgPool2d(1)(hidet.ones([1, 1, 2, 2])).item() == 1.0",
            "Embedding": "assert hidet.nn.Embedding(7, 4)(i).shape == (2, 3, 4)",
            "Identity": "assert hidet.nn.Identity()(x) is x",
            "Relu": "assert hidet.nn.Relu()(-one).item() == 0.0",
            "Gelu": "assert 6.9 < hidet.nn.Gelu()(one).item() < 7.1",
            "Geglu": "assert hidet.nn.Geglu(3, 5)(x).shape == (2, 5)",
            "Tanh": "assert hidet.nn.Tanh()(one).item() <= 1.0",
            "CrossAttention": (
                "layer = hidet.nn.CrossAttention(4, heads=2, dim_head=2)\n"
                "assert layer(hidet.ones([1, 3, 4])).shape == (1, 3, 4)"
            ),
        },
        doc="For inference; `flow_graph_for(inputs)` gives the graph of a model.",
    ),
    Group(
        "hidet.testing",
        acts={
            "models": "assert len(hidet.testing.models.resnet18(num_classes=2).parameters()) == 102",
            "check_unary": "hidet.testing.check_unary([3], numpy.negative, hidet.ops.negative)",
            "check_unary_dynamic": "hidet.testing.check_unary_dynamic([('n', 3)], numpy.negative, hidet.ops.negative)",
            "check_binary": "hidet.testing.check_binary([3], [3], numpy.add, hidet.ops.add)",
            "check_binary_dynamic": (
                "hidet.testing.check_binary_dynamic([('n', 3)], [('n', 3)], numpy.add, hidet.ops.add)"
            ),
            "check_ternary": (
                "hidet.testing.check_ternary([3], [3], [3], lambda a, b, c: a + b - c, lambda a, b, c: a + b - c)"
            ),
            "check_torch_unary": "hidet.testing.check_torch_unary([3], torch.neg, hidet.ops.negative)",
            "check_torch_binary": "hidet.testing.check_torch_binary([3], [3], torch.add, hidet.ops.add)",
            "check_torch_binary_dynamic": (
                "hidet.testing.check_torch_binary_dynamic([('n', 3)], [('n', 3)], torch.add, hidet.ops.add)"
            ),
            "check_torch_binary_with_inputs": (
                "hidet.testing.check_torch_binary_with_inputs(torch.ones(2), torch.ones(2), torch.add, hidet.ops.add)"
            ),
            "check_torch_ternary": (
                "hidet.testing.check_torch_ternary([3], [3], [3], lambda a, b, c: a + b - c, lambda a, b, c: a + b - c)"
            ),
            "check_module": "hidet.testing.check_module(torch.nn.Linear(3, 2), [torch.ones(1, 3)])",
            "assert_torch_allclose": "hidet.testing.assert_torch_allclose(hidet.ones([2]), torch.ones(2))",
            "capture_stdout": (
                "with hidet.testing.capture_stdout() as captured: print('seen')\n"
                "assert captured.getvalue() == 'seen\\n'"
            ),
            "device_to_torch": "assert hidet.testing.device_to_torch('vcuda') == 'cuda'",
            "benchmark_func": "hidet.testing.benchmark_func(lambda: None, warmup=0, number=1, repeat=1)",
        },
        notes={"models": "`resnet18` to `resnet152`; language models are those of other libraries, compiled"},
    ),
)
