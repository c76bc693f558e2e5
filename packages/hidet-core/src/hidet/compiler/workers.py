"""Compiles the modules of a graph in child processes and in this one at once.

Passes and code generators are Python, of which a process runs one thread at a time. Children (`hidet.child_process`)
start while the graph is scheduled, and each gets its share of the modules at once. A child that dies or stalls costs
one CompileError that names its modules.
"""

from __future__ import annotations

import contextlib
import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from hidet import option
from hidet.child_process import ChildProcess, can_start_children, import_path
from hidet.compiler.worker import Greeting, PackedModule, Refusal, compilation_key, pack_module
from hidet.context import CompileContext
from hidet.cpus import available_cpus
from hidet.errors import CompileError, PluginWarning
from hidet.graph.graph import Graph
from hidet.host.units import CompileUnit
from hidet.ir.structural import function_digest
from hidet.plugins.host import is_of_environment
from hidet.target import Binary

LEAST_CPUS = 4
"""CPUs below which this process compiles alone: its threads keep fewer busy, and children take time to start."""
LEAST_KINDS = 12
"""Kinds of nodes of a graph, by operators and types, below which this process compiles alone: there are few modules,
and scheduling is over before children have started."""

_KINDS_PER_WORKER = 3  # of nodes: about two become a module
_SECONDS_PER_MODULE = 120.0
_OTHER_CODE = (
    "a compile worker finds other plug-ins, tools or sources than this process, which compiles alone; "
    "HIDET_NUM_WORKERS=0 says so beforehand"
)


def kinds_of(graph: Graph) -> int:
    """How many kinds of nodes a graph has, by operators and types: equal ones share their modules."""
    return len({(node.op.name, *[str(value.type) for value in node.values]) for node in graph.nodes})


def wanted_workers(kinds: int, ctx: CompileContext) -> int:
    """How many children compile modules of a graph: what the user says, else by CPUs and kinds of nodes.

    kinds: as `kinds_of` gives it, or what a front-end knows of it before there is a graph. 0 where modules, or what
    passes make of them, have to be seen in this process (hidet's own wheels look at graph passes alone), where targets
    do not compile in others, and where plug-ins are active that other processes do not find.
    """
    options, registry = ctx.options, ctx.registry
    if not getattr(ctx.target, "compiles_apart", False) or not is_of_environment(registry):
        return 0
    hears = any(callback.is_foreign for callback in registry.callbacks["hidet_pass_done"])
    if options.verify or options.dump is not None or hears:
        return 0
    # Code in no file, such as a notebook's, has another name each time.
    if compilation_key(ctx) != compilation_key(ctx):
        return 0
    if not can_start_children():
        return 0
    chosen, cpus = option.chosen_workers(), available_cpus()
    if chosen is not None:
        return min(chosen, kinds)
    if cpus < LEAST_CPUS or kinds < LEAST_KINDS:
        return 0
    return min(cpus - 1, kinds // _KINDS_PER_WORKER)


@contextmanager
def workers_of(graph: Graph, ctx: CompileContext) -> Iterator[CompileWorkers]:
    """The children that wait in the context, or new ones, which the block's end ends."""
    waiting = ctx.workers
    if isinstance(waiting, CompileWorkers) and waiting.wait_for(ctx):
        yield waiting
        return
    with CompileWorkers(wanted_workers(kinds_of(graph), ctx), ctx) as workers:
        yield workers


class CompileWorkers:
    """Child processes that compile modules of graphs, as a context manager that ends them. count: how many."""

    def __init__(self, count: int, ctx: CompileContext) -> None:
        self._children: list[_Child] = []
        self._told = (ctx.target, ctx.options, ctx.registry)
        greeting = pickle.dumps(Greeting(ctx.target, ctx.options, ctx.machine, compilation_key(ctx))) if count else b""
        for _ in range(count):
            try:
                self._children.append(_Child(greeting))
            except OSError:
                return  # no process to be had: the work is done here all the same

    def __enter__(self) -> CompileWorkers:
        return self

    def __exit__(self, *exception: object) -> None:
        # All at once: none waits for another one's end.
        for child in self._children:
            child.kill()
        while self._children:
            self._children.pop().close()

    def wait_for(self, ctx: CompileContext) -> bool:
        """Whether there are children that wait for modules of this context."""
        return bool(self._children) and self._told == (ctx.target, ctx.options, ctx.registry)

    def compile(
        self, units: Mapping[str, CompileUnit], compile_here: Callable[[Sequence[str]], list[Binary]]
    ) -> list[Binary]:
        """Machine code of modules, in any order.

        compile_here: compiles those of some names in this process; it gets a share like a child's, and what cannot be
        sent. Raises the HidetError of the first module that is refused; CompileError for a child that dies or stalls.
        """
        if not self._children:
            return compile_here(list(units))
        packed = {name: pack_module(unit.module) for name, unit in units.items()}
        sent = {name: data for name, data in packed.items() if data is not None}
        *others, own = share_modules(sent, units, len(self._children) + 1)
        own += [name for name, data in packed.items() if data is None]
        requests = [[PackedModule(name, sent[name], units[name].effort) for name in share] for share in others]
        try:
            made = self._ask(requests, lambda: compile_here(own) if own else [])
        except BaseException:
            self.__exit__()  # some are dead, and others have work that nobody wants
            raise
        left = [module.name for module in made if isinstance(module, PackedModule)]
        if left:
            warnings.warn(PluginWarning(_OTHER_CODE), stacklevel=2)
            made += compile_here(left)
        return [module for module in made if isinstance(module, Binary)]

    def _ask(
        self, requests: Sequence[Sequence[PackedModule]], compile_own: Callable[[], list[Binary]]
    ) -> list[Binary | PackedModule]:
        """What children make of a request each, and this process meanwhile of its own share."""
        with ThreadPoolExecutor(len(requests)) as threads:
            pairs = zip(self._children, requests, strict=True)
            asked = [threads.submit(child.compile, request) for child, request in pairs if request]
            try:
                made: list[Binary | PackedModule] = [*compile_own()]
                for answer in asked:
                    made += answer.result()
            except BaseException:
                for child in self._children:
                    child.kill()  # threads wait for no answer any more
                raise
        return made


def share_modules(sent: Mapping[str, bytes], units: Mapping[str, CompileUnit], count: int) -> list[list[str]]:
    """Names of modules in `count` shares of about equal work, each with its longest modules first.

    sent: what is sent of each module, by whose size its work is judged. Kernels that differ in their names alone are
    compiled once by who has all of them, and so count once in a share.
    """
    shares: list[list[str]] = [[] for _ in range(count)]
    kernels: list[set[str]] = [set() for _ in range(count)]
    work = [0.0] * count
    for name in sorted(sent, key=lambda name: -len(sent[name])):
        module = units[name].module
        own = {function_digest(f) for f in module.functions if f.kind == "kernel"} or {name}
        added = [len(sent[name]) * len(own - known) / len(own) for known in kernels]
        best = min(range(count), key=lambda number: work[number] + added[number])
        shares[best].append(name)
        kernels[best] |= own
        work[best] += added[best]
    return shares


class _Child:
    """One worker process, started at once. greeting: a pickled `Greeting`."""

    def __init__(self, greeting: bytes) -> None:
        # -P keeps the user's working directory out: the path given here is all it needs. numpy would start a thread
        # for each CPU.
        self._process = ChildProcess(
            "hidet.compiler.worker", ["-P"], import_path(), environment={"OPENBLAS_NUM_THREADS": "1"}
        )
        with contextlib.suppress(OSError):  # it is dead already, which `compile` will tell
            self._process.requests.write(greeting)
            self._process.requests.flush()

    def compile(self, request: Sequence[PackedModule]) -> Sequence[Binary | PackedModule]:
        """Machine code of modules; the modules themselves where the process finds other code than this one.

        HidetError if one is refused, CompileError if the process dies or stalls.
        """
        seconds, names = _SECONDS_PER_MODULE * len(request), ", ".join(module.name for module in request)
        try:
            with self._process.limited(seconds):
                pickle.dump(request, self._process.requests)
                self._process.requests.flush()
                answer: list[Binary] | Refusal | None = pickle.load(self._process.answers)
        except (OSError, ValueError, EOFError, pickle.UnpicklingError):
            # The pipe broke.
            stalled = CompileError(
                f"a compile worker did not finish {names} within {seconds:g} s",
                hint="a kernel may be unrolled too far; HIDET_DUMP=<folder> keeps its text",
            )
            raise self._process.failure(names, stalled) from None
        if isinstance(answer, Refusal):
            raise answer.error()
        return request if answer is None else answer

    def kill(self) -> None:
        """End the process, from any thread; a `compile` under way fails."""
        self._process.kill()

    def close(self) -> None:
        """Wait for the end of the process, and close its pipes."""
        self._process.close()
