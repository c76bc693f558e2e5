"""Graphs whose options ask for tuning: `options={"tune": "60s"}`, `mode="max-autotune"`, `search_space`."""

from __future__ import annotations

from typing import cast

from hidet.budget import Budget
from hidet.compiler.graphs import ImportedModel
from hidet.context import CompileContext
from hidet.graph.graph import Graph
from hidet.runtime.compiled import CompiledGraph
from hidet.runtime.signature import Signature
from hidet.tuning.executor import executor_named
from hidet.tuning.session import Part, Session
from hidet.tuning.store import Store, store_path
from hidet.tuning.strategy import strategy_named
from hidet.tuning.tuner import CANDIDATE_SECONDS, tuning_store


def tune_graph(graph: Graph, ctx: CompileContext, signature: Signature | None) -> CompiledGraph | None:
    """The graph, compiled with what is faster. None where a mode means tuning, and there is nowhere to do it: the store
    is off, or the code is for another machine. OptionError there where a budget is named."""
    budget, given = cast(Budget, ctx.options.tune), str(ctx.option("tune.store"))
    if budget.is_implied and (store_path(given) is None or ctx.machine is not None):
        return None
    session = Session(
        [Part(ImportedModel(graph, ctx, signature))],
        Store(tuning_store(given)),
        budget,
        strategy=strategy_named(str(ctx.option("tune.strategy")), ctx.registry),
        make_executor=executor_named(str(ctx.option("tune.executor")), ctx.registry),
        level=ctx.options.search_level,
        candidate_seconds=CANDIDATE_SECONDS,
    )
    with budget.spending():
        session.run()
    (compiled,) = session.compiled
    return compiled
