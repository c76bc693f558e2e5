"""Run from an environment that has only hidet-compat and what it needs: its names are attributes of hidet's modules."""

import hidet

assert hidet.option.get_parallel_k() == "default"
with hidet.graph.PassContext() as context:
    context.set_mma("mma")
print("hidet-compat is found")
