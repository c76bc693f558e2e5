"""`tune`: spend a budget where a model's time goes, and keep what is faster."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hidet.budget import Budget
from hidet.compiler.graphs import compiled_parts, import_model
from hidet.context import Options, options_from
from hidet.dims import Dim
from hidet.errors import OptionError
from hidet.runtime.compiled import CompiledGraph
from hidet.tuning.executor import MakeExecutor, executor_named
from hidet.tuning.report import TuneReport
from hidet.tuning.report_live import Observe
from hidet.tuning.session import Part, Session
from hidet.tuning.store import Store, store_path
from hidet.tuning.strategy import Strategy, strategy_named

CANDIDATE_SECONDS = 10.0
"""What a trial may take, compilation and all, where nobody says otherwise."""


def tune(
    model: Any,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    budget: Budget | str | float = "60s",
    *,
    target: str = "auto",
    options: Options | Mapping[str, Any] | None = None,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    values: Mapping[str, Any] | None = None,
    store: str = "",
    strategy: Strategy | str = "",
    executor: MakeExecutor | str = "",
    candidate_seconds: float = CANDIDATE_SECONDS,
    progress: Observe | None = None,
) -> TuneReport:
    """Measure parameters of a model's schedules and keep the faster ones, which later compilations then take.

    model: what `hidet.compile` takes, or what `torch.compile(module, backend="hidet")` has returned, whose graphs are
    tuned together and replaced by the faster ones; target and options other than search_space are then those of before,
    and example_inputs are for a model that was not called yet.
    example_inputs, target, options, shapes, values: as `hidet.compile` takes them; the model is measured on the example
    inputs, random ones where there are none. Choices are for these sizes, this machine and this number of threads.
    budget: seconds, or "90s", "2m". What an earlier call has measured is taken from the store and not measured again;
    what one with a budget as large has left stays as it is.
    store: its file; "" is the option tune.store, HIDET_TUNE_STORE, or a file beside the kernel cache.
    strategy: how points are searched: a name (`hidet plugins -v` lists them), or a strategy itself; "" is the option
    tune.strategy.
    executor: where programs are compiled and measured: a name, or a function that makes an executor; "" is the option
    tune.executor.
    candidate_seconds: what a trial may take before it counts as one that never ends.
    progress: hears how far each task is (`hidet.tuning.Progress`); a `LiveTable` shows it.
    Ctrl-C ends the search: what was found is kept, and the model is compiled with it.
    OptionError for a budget that cannot be read, and for the machine of somebody else.
    """
    start, shared = time.monotonic(), Budget.of(budget)
    if isinstance(model, CompiledGraph):
        raise OptionError(
            "a compiled graph does not hold the graph that it was made from, so it cannot be tuned",
            hint="give hidet.tune what was given to hidet.compile",
        )
    chosen = options_from(options)
    path = tuning_store(store or chosen.plugin_options.get("tune.store", ""))
    with shared.spending():
        compiled = compiled_parts(model, example_inputs)
        if compiled is None:
            imported = import_model(model, example_inputs, target=target, options=chosen, shapes=shapes, values=values)
            parts = [Part(imported, example_inputs)]
        else:
            parts = [Part(each.imported) for each in compiled]
    reports: list[TuneReport] = []
    graphs: dict[Part, CompiledGraph] = {}
    for device in dict.fromkeys(part.device for part in parts):
        own = [part for part in parts if part.device == device]
        ctx = own[0].imported.ctx
        registry = ctx.registry
        strategy = strategy or str(ctx.option("tune.strategy"))
        executor = executor or str(ctx.option("tune.executor"))
        session = Session(
            own,
            Store(path),
            shared,
            strategy=strategy_named(strategy, registry) if isinstance(strategy, str) else strategy,
            make_executor=executor_named(executor, registry) if isinstance(executor, str) else executor,
            level=1 if chosen.search_space is None else chosen.search_level,
            candidate_seconds=candidate_seconds,
            progress=progress,
        )
        with shared.spending():
            reports.append(session.run())
        graphs |= zip(own, session.compiled, strict=True)
    tasks = tuple(task for report in reports for task in report.tasks)
    report = replace(reports[0], tasks=tasks, seconds=time.monotonic() - start)
    if compiled is None:
        return report
    for each, part in zip(compiled, parts, strict=True):
        each.replace(graphs[part])
    return replace(report, compiled=model)


def tuning_store(given: str) -> Path:
    """The file to keep choices in. OptionError where there is to be none."""
    path = store_path(given)
    if path is None:
        raise OptionError('tuning needs a store, and tune.store is "off"', hint="leave it out, or name a file")
    return path
