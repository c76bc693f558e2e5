"""A graph to look at
==================

See a graph: printed, as a file for the viewer Netron, and after every pass of the compiler.
"""

from pathlib import Path

import hidet
from hidet import Tensor, nn, ops


class SelfAttention(nn.Module):
    def __init__(self, hidden_size: int, heads: int):
        super().__init__()
        self.heads, self.size = heads, hidden_size // heads
        self.query, self.key, self.value = (nn.Linear(hidden_size, hidden_size) for _ in range(3))

    def by_heads(self, x: Tensor) -> Tensor:
        x = ops.reshape(x, [x.shape[0], x.shape[1], self.heads, self.size])
        return ops.rearrange(x, [[0], [2], [1], [3]])

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (self.by_heads(part(x)) for part in (self.query, self.key, self.value))
        scores = ops.matmul(query, ops.transpose(key, [0, 1, 3, 2])) / float(self.size) ** 0.5
        return ops.matmul(ops.softmax(scores, axis=-1), value)


def main() -> None:
    device = "cuda" if hidet.cuda.available() else "cpu"
    model = SelfAttention(hidden_size=16, heads=4).to(device=device)
    print(model)
    x = hidet.randn([1, 6, 16], device=device)
    graph = model.flow_graph_for(inputs=[x])
    print(graph)

    Path("outs").mkdir(exist_ok=True)
    with open("./outs/graph.json", "w") as file:
        hidet.utils.netron.dump(graph, file)

    with hidet.graph.PassContext() as ctx:
        ctx.profile_pass_instrument(print_stdout=True)
        ctx.save_graph_instrument(out_dir="./outs/graphs")
        optimized = hidet.graph.optimize(graph)
        found = optimized(x)
    hidet.utils.assert_close(found, model(x), rtol=1e-4, atol=1e-4)
    stages = sorted(path.name for path in Path("outs/graphs").iterdir())
    print(len(stages), "files, from", stages[0])
    assert Path("outs/graph.json").stat().st_size > 0 and stages


if __name__ == "__main__":
    main()
