"""What became of names of hidet 0.6 about flow graphs, what is compiled of them, and passes; see `names_of_hidet`."""

from __future__ import annotations

from tests.name_rows import Group
from tests.names_of_kernels import TASK

GROUPS = (
    Group(
        "hidet.FlowGraph",
        acts={
            "inputs": "assert graph(x).shape == graph.outputs[0].shape == graph.inputs[0].shape",
            "outputs": "assert len(graph.outputs) == 1",
            "nodes": "assert [node.name for node in graph.nodes] == ['relu', 'add']",
            "__call__": "assert graph(one.expand(3).reshape([1, 3]).expand(2, 3)).tolist()[0][0] == 8.0",
            "forward": "(y,) = graph.forward([x])",
            "dummy_inputs": "assert graph.dummy_inputs()[0].shape == (2, 3)",
            "latency": "assert graph.latency(warmup=1, repeat=2) > 0",
            "build": "compiled = graph.build()",
            "__str__": "assert 'x_1: float32[2, 3][cpu] = Relu(x)' in str(graph)",
            "usage_count": "assert graph.usage_count[graph.inputs[0]] == 1",
            "share_map": "assert hidet.trace_from([s * 2.0, s], inputs=[s]).share_map == {1: 0}",
            "draw": "graph.draw('graph.dot'); assert 'relu' in read('graph.dot')",
            "save": "graph.save('g.hidet'); assert hidet.load_graph('g.hidet')(x).tolist() == graph(x).tolist()",
            "load": "graph.save('graph.hidet'); assert str(hidet.FlowGraph.load('graph.hidet')) == str(graph)",
        },
        present="cuda_graph cuda_",
        warns={"vcuda_": "graph.vcuda_()"},
        refused={"hip_graph": "graph.hip_graph()", "vhip_": "graph.vhip_()"},
        notes={
            "draw": "Graphviz's text for names that end in `.dot`",
            "nodes": "operations with the names of the graph IR, `node.name`",
            "vcuda_": "nothing is converted to save memory: weights stay where they are",
        },
    ),
    Group(
        "hidet.runtime.CompiledGraph",
        acts={
            "__call__": "assert graph.build()(x.numpy()).shape == (2, 3)",
            "save": "graph.build().save('saved.hidet'); assert hidet.load('saved.hidet')(x.numpy()).shape == (2, 3)",
            "run_async": "assert graph.build().run_async([x])[0].tolist() == graph(x).tolist()",
            "weights": "assert [tensor.size for tensor in product.build().weights if tensor.size > 5]",
            "meta": "assert graph.build().meta.inputs[0].shape == [2, 3]",
            "get_cache_dir": "hidet.option.cache_dir('here'); assert graph.build().get_cache_dir().endswith('/here')",
        },
        present="cuda_graph",
        refused={
            "set_weights": "graph.build().set_weights([])",
            "dispatch_table": "graph.build().dispatch_table",
            "clear_dispatch_table": "graph.build().clear_dispatch_table()",
        },
        notes={
            "weights": "constants as kernels read them, packed where that is quicker",
            "set_weights": "make weights inputs of the graph",
            "dispatch_table": "programs take sizes as arguments",
        },
    ),
    Group(
        "hidet.graph",
        acts={
            "save_graph": "hidet.graph.save_graph(graph, 'graph.hidet')",
            "load_graph": "hidet.graph.save_graph(graph, 'g.hidet'); assert hidet.graph.load_graph('g.hidet')(x).shape",
            "flow_graph": "from hidet.graph.flow_graph import FlowGraph; assert isinstance(graph, FlowGraph)",
            "frontend": "import hidet.graph.frontend as f; assert f.from_torch(torch.nn.Tanh())(x).shape == (2, 3)",
            "forward_context": (
                "with hidet.graph.forward_context() as ctx: ctx.debug('debug'); graph(x); "
                "assert 'Relu' in read('debug/summary.txt')"
            ),
            "GraphForwardContext": "assert hidet.graph.GraphForwardContext.current().instruments == []",
            "GraphForwardInstrument": "hidet.graph.GraphForwardInstrument().before_graph(graph, [x])",
            "GraphForwardDebugInstrument": (
                "with hidet.graph.forward_context() as ctx: "
                "ctx.append_instrument(hidet.graph.GraphForwardDebugInstrument('debug')); graph(x); "
                "assert read('debug/graph.txt')"
            ),
            "GraphForwardBenchmarkInstrument": (
                "with hidet.graph.forward_context() as ctx: "
                "ctx.append_instrument(hidet.graph.GraphForwardBenchmarkInstrument('times', number=1)); graph(x); "
                "assert 'Relu' in read('times/summary.txt')"
            ),
            "GraphPass": (
                "class Nothing(hidet.graph.GraphPass):\n    def process_graph(self, graph): return graph\n"
                "assert Nothing()(graph) is graph"
            ),
            "GraphPassInstrument": (
                "heard = hidet.graph.GraphPassInstrument(); heard.after_pass = lambda name, after: names.append(name); "
                "names = []\n"
                "with hidet.graph.PassContext() as ctx: ctx.instruments.append(heard); hidet.graph.optimize(graph); "
                "assert 'simplify' in names"
            ),
            "FlowGraph": "assert hidet.graph.FlowGraph is hidet.FlowGraph",
            "trace_from": "hidet.graph.trace_from(hidet.ops.relu(s))",
            "optimize": "hidet.graph.optimize(graph)",
            "Tensor": "assert hidet.graph.Tensor is hidet.Tensor",
            "ops": "hidet.graph.ops.relu(x)",
            "asarray": "hidet.graph.asarray([1])",
            "randint": "hidet.graph.randint(2)",
            "full": "hidet.graph.full([2], 1.0)",
            "full_like": "hidet.graph.full_like(x, 1.0)",
            "from_numpy": "hidet.graph.from_numpy(x.numpy())",
            "from_dlpack": "hidet.graph.from_dlpack(x.torch())",
            "from_torch": "hidet.graph.from_torch(x.torch())",
            "randn": "hidet.graph.randn([2])",
            "empty": "hidet.graph.empty([2])",
            "zeros": "hidet.graph.zeros([2])",
            "ones": "hidet.graph.ones([2])",
            "symbol": "hidet.graph.symbol([2])",
            "randn_like": "hidet.graph.randn_like(x)",
            "empty_like": "hidet.graph.empty_like(x)",
            "zeros_like": "hidet.graph.zeros_like(x)",
            "ones_like": "hidet.graph.ones_like(x)",
            "symbol_like": "hidet.graph.symbol_like(x)",
            "operator": "from hidet.graph.operator import Operator; assert Operator is hidet.graph.Operator",
            "tensor": "from hidet.graph.tensor import Tensor, ones; assert isinstance(ones([2]), Tensor)",
            "Operator": TASK + "assert Twice(x).outputs[0].tolist() == (x + x).tolist()",
        },
        present="transforms nn Module quant",
    ),
    Group(
        "hidet.graph.PassContext",
        acts={
            "add_quantize_rules": (
                "w = hidet.trace_from(hidet.ops.matmul(s, hidet.randn([3, 4])))\n"
                "with hidet.graph.PassContext() as ctx: "
                "ctx.add_quantize_rules(hidet.graph.quant.default_patterns()); w = hidet.graph.optimize(w)\n"
                "assert 'int8' in str(w)"
            ),
            "save_graph_instrument": (
                "with hidet.graph.PassContext() as ctx: "
                "ctx.save_graph_instrument('stages'); hidet.graph.optimize(graph); "
                "assert read('stages/0_import.json')"
            ),
            "profile_pass_instrument": (
                "with hidet.graph.PassContext() as ctx: "
                "ctx.profile_pass_instrument('times.txt'); hidet.graph.optimize(graph); "
                "assert 'simplify' in read('times.txt')"
            ),
            "reduce_cuda_compile_mem": (
                "a = hidet.ones([3, 3]); graph = hidet.trace_from(hidet.ops.matmul(s, a))\n"
                "with hidet.graph.PassContext().reduce_cuda_compile_mem(True): after = hidet.graph.optimize(graph)\n"
                "(held,) = after.graph.constants.values(); assert numpy.shares_memory(held.numpy(), a.numpy())"
            ),
            "allow_source_graph_removal": (
                "with hidet.graph.PassContext().allow_source_graph_removal(): optimized = hidet.graph.optimize(graph)\n"
                "assert optimized(x).tolist() == graph(x).tolist()"
            ),
            "set_verbose": (
                "import contextlib, io; shown = io.StringIO()\n"
                "with hidet.graph.PassContext().set_verbose(), contextlib.redirect_stdout(shown): "
                "hidet.graph.optimize(product)\n"
                "assert 'operators' in shown.getvalue()"
            ),
            "current": "hidet.graph.PassContext.current()",
            **{
                name: (
                    f"with hidet.graph.PassContext() as ctx: ctx.{call}; "
                    f"assert hidet.option.get_option({option}) {value}"
                )
                for name, call, option, value in (
                    ("set_mma", "set_mma('simt')", "'cuda.matrix_units'", "is False"),
                    ("set_use_attention", "set_use_attention(False)", "'compat.attention'", "is False"),
                    ("set_parallel_k", "set_parallel_k(nparts=4)", "'gpu.split_k'", "== 4"),
                    ("set_reduce_precision", "set_reduce_precision('float16')", "'cuda.fp16_accumulation'", "is True"),
                )
            },
            "set_precision": (
                "with hidet.graph.PassContext() as ctx: ctx.set_precision('float16'); "
                "assert 'float16[' in str(hidet.graph.optimize(product))"
            ),
        },
        notes={
            "set_precision": "see [Mixed precision](mixed-precision.md)",
            "set_reduce_precision": "what matrix units sum products of f16 in",
        },
        doc="Of the wheel `hidet-compat`.",
    ),
)
