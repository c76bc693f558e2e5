"""Run where only hidet-testing and what it needs are installed: a random graph is made, and computed by numpy."""

import hidet
from hidet.plugins.host import load_registry
from hidet.testing.interpret import interpret
from hidet.testing.random_graphs import random_graph, random_inputs

assert "site-packages" in hidet.testing.__file__, hidet.testing.__file__
graph = random_graph(3, load_registry().operators)
assert len(interpret(graph, random_inputs(graph, seed=0))) == len(graph.outputs)
print("hidet-testing makes graphs")
