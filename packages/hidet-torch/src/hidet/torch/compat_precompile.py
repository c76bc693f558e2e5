"""torch's caching precompile (`torch._dynamo.config.caching_precompile`), with which a fresh process traces nothing:
torch keeps dynamo's bytecode and guards, and a backend what its graphs were compiled to.

Of ours that is the text of a trace, as `kept_traces` keeps it, and what its compilation depended on. The graph comes
out of the kernel cache compiled, or is compiled again from the text. Private names of torch; see `compat`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import torch
from hidet.compiler.kept_graphs import compilation_fields
from hidet.context import make_context
from hidet.errors import HidetError
from hidet.torch import compat, compat_state
from hidet.torch.compiled_models import recording
from hidet.torch.config import compares_results, prints_graphs, settings_by_name
from hidet.torch.devices import targets_of_devices
from hidet.torch.kept_traces import KeptTrace, decode_trace
from hidet.torch.running import called_directly, keeps_traces, run_kept
from hidet.torch.settings import as_mapping, chosen_target, torch_options
from torch._dynamo.precompile_context import BackendCacheArtifact, PrecompileContext

Run = Callable[..., Any]


class GraphArtifact(BackendCacheArtifact[Run]):
    """A compiled graph that torch hands over to later processes. content: JSON, all that is written of it. run: what it
    was restored to; None for one that is to be written."""

    def __init__(self, key: str, content: str, run: Run | None = None) -> None:
        super().__init__(key, content)
        self._run = run

    def after_deserialization(self) -> Run:
        """What dynamo's bytecode calls."""
        return _restore_graph(self.content) if self._run is None else self._run

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.key, self.content)

    def __deepcopy__(self, memo: object) -> GraphArtifact:
        # torch keeps copies as long as a process runs, and compiled graphs only as long as their models.
        return GraphArtifact(self.key, self.content)


def keep_artifact(name: str, kept: KeptTrace, compilation: Mapping[str, str]) -> None:
    """Hand what a graph of dynamo's was compiled to over to torch, which writes it when the user calls
    `torch.compiler.save_cache_artifacts`. name: torch's name of the graph (`compat.precompile_name`). compilation: that
    of the trace's key."""
    data = {"trace": kept.data, "compilation": dict(compilation), "torch": compat_state.lasting_state()}
    PrecompileContext.record_artifact(GraphArtifact(name, json.dumps(data)))


def _restore(key: str, content: str) -> GraphArtifact:
    return GraphArtifact(key, content, _restore_graph(content))


def _restore_graph(content: str) -> Run:
    """The compiled graph, while torch.compile reads what an earlier process left for the function that it is given.

    HidetError where a compilation would not give the same now: torch says so, and compiles anew. torch finds what was
    left by the name of the function alone, whatever backend, options, and wheels made it.
    """
    backend, mode, options = compat.asked_of_torch()
    if backend != _BACKEND:
        raise HidetError(f"a graph was compiled by backend hidet, and is asked for with {backend}")
    data = json.loads(content)
    device = torch.device(data["trace"]["device"])
    with settings_by_name(as_mapping(options)) as named, recording() as record, compat.real_tensors():
        targets = targets_of_devices({device: "tensors"}, chosen_target(named))
        ctx = make_context(targets[device], record.with_budget(torch_options(mode, named)))
        kept = decode_trace(data["trace"], data["compilation"], ctx)
        is_asked_alike = keeps_traces(ctx) and not compares_results() and not prints_graphs()
        found = compilation_fields(ctx), compat_state.lasting_state()
        if not is_asked_alike or found != (data["compilation"], data["torch"]):
            raise HidetError("a graph was compiled with other options, other wheels, or for another machine")
        return called_directly(run_kept(kept, ctx, record))


_BACKEND = "hidet.torch.backend"
"""The module of the function that torch.compile calls."""
