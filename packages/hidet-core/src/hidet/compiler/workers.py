"""Compiles the modules of a graph in child processes and in this one at once.

Passes and code generators are Python, of which a process runs one thread at a time. Children (`hidet.child_process`)
start while the graph is traced or optimised. They compile each module from when its schedule has built it, while this
process builds others; what turns out not to be needed is given up. A child that dies or stalls costs one CompileError
that names its module.
"""

from __future__ import annotations

import contextlib
import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue

from hidet import option
from hidet.child_process import ChildProcess, can_start_children, import_path
from hidet.compiler.worker import Greeting, PackedModule, Refusal, compilation_key, pack_module
from hidet.context import CompileContext
from hidet.cpus import available_cpus
from hidet.errors import CompileError, PluginWarning
from hidet.graph.graph import Graph
from hidet.host.units import CompileUnit
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


Report = Callable[[int, int], None]
"""Is called with how many of how many modules or kernels are compiled."""
CompileHere = Callable[[Sequence[str], Report | None], list[Binary]]
"""Compiles the modules of some names in this process."""


class CompileWorkers:
    """Child processes that compile modules of graphs, as a context manager that ends them. count: how many."""

    def __init__(self, count: int, ctx: CompileContext) -> None:
        self._children: list[_Child] = []
        self._idle: SimpleQueue[_Child] = SimpleQueue()
        self._begun: dict[str, _Begun] = {}
        self._told = (ctx.target, ctx.options, ctx.registry)
        greeting = pickle.dumps(Greeting(ctx.target, ctx.options, ctx.machine, compilation_key(ctx))) if count else b""
        with contextlib.suppress(OSError):  # no process to be had: the work is done here all the same
            for _ in range(count):
                self._children.append(_Child(greeting))
        for child in self._children:
            self._idle.put(child)
        # As many as children, so that whoever takes an idle one finds it.
        self._threads = ThreadPoolExecutor(max(len(self._children), 1))

    def __enter__(self) -> CompileWorkers:
        return self

    def __exit__(self, *exception: object) -> None:
        # All at once: none waits for another one's end.
        for child in self._children:
            child.kill()
        self._threads.shutdown(cancel_futures=True)
        while self._children:
            self._children.pop().close()

    @property
    def are_there(self) -> bool:
        """Whether there are children."""
        return bool(self._children)

    def wait_for(self, ctx: CompileContext) -> bool:
        """Whether there are children that wait for modules of this context."""
        return self.are_there and self._told == (ctx.target, ctx.options, ctx.registry)

    def begin(self, name: str, unit: CompileUnit) -> None:
        """Have a module compiled that `compile` is likely to be asked for. Nothing happens where there is no child, and
        where the module cannot be sent."""
        if self._children and name not in self._begun:
            data = pack_module(unit.module)
            if data is not None:
                self._begin(PackedModule(name, data, unit.effort), unit.digest)

    def compile(self, units: Mapping[str, CompileUnit], compile_here: CompileHere, report: Report) -> list[Binary]:
        """Machine code of modules, in any order. What else was begun is given up.

        compile_here: gets what cannot be sent, one of the modules that were not begun, and what no child comes to.
        Raises the HidetError of the first module that is refused; CompileError for a child that dies or stalls.
        """
        if not self._children:
            return compile_here(list(units), report)
        try:
            made = self._compile(units, compile_here, report)
        except BaseException:
            self.__exit__()  # some are dead, and others have work that nobody wants
            raise
        left = [module.name for module in made if isinstance(module, PackedModule)]
        if left:
            warnings.warn(PluginWarning(_OTHER_CODE), stacklevel=2)
            made += compile_here(left, None)
        return [module for module in made if isinstance(module, Binary)]

    def _compile(
        self, units: Mapping[str, CompileUnit], compile_here: CompileHere, report: Report
    ) -> list[Binary | PackedModule]:
        """What children and this process make of modules; those that a child could not compile as they are."""
        for name, begun in list(self._begun.items()):
            if name not in units or begun.digest != units[name].digest or begun.effort != units[name].effort:
                begun.answer.cancel()
                del self._begun[name]
        rest = [name for name in units if name not in self._begun]
        # The last one is host code as a rule, which is compiled here.
        packed = {name: pack_module(units[name].module) for name in rest[:-1]}
        for name, data in sorted(packed.items(), key=lambda item: -len(item[1] or b"")):
            if data is not None:
                self._begin(PackedModule(name, data, units[name].effort), units[name].digest)
        answers, self._begun = {name: begun.answer for name, begun in self._begun.items()}, {}
        own = [name for name in rest if name not in answers]
        made: list[Binary | PackedModule] = [*compile_here(own, None)] if own else []
        for name in reversed(list(answers)):
            report(len(made), len(units))
            if answers[name].cancel():
                del answers[name]
                made += compile_here([name], None)
        for answer in answers.values():
            made.append(answer.result())
            report(len(made), len(units))
        return made

    def _begin(self, module: PackedModule, digest: str) -> None:
        answer = self._threads.submit(self._compile_in_child, module)
        self._begun[module.name] = _Begun(digest, module.effort, answer)

    def _compile_in_child(self, module: PackedModule) -> Binary | PackedModule:
        """What the next idle child makes of a module."""
        child = self._idle.get()
        try:
            return child.compile(module)
        finally:
            # One that is dead says so of the next module, too.
            self._idle.put(child)


@dataclass(frozen=True, slots=True)
class _Begun:
    """A module that waits for a child, or that one compiles. digest, effort: of its `CompileUnit`."""

    digest: str
    effort: int
    answer: Future[Binary | PackedModule]


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

    def compile(self, module: PackedModule) -> Binary | PackedModule:
        """Machine code of a module; the module itself where the process finds other code than this one.

        HidetError if it is refused, CompileError if the process dies or stalls.
        """
        try:
            with self._process.limited(_SECONDS_PER_MODULE):
                pickle.dump(module, self._process.requests)
                self._process.requests.flush()
                answer: Binary | Refusal | None = pickle.load(self._process.answers)
        except (OSError, ValueError, EOFError, pickle.UnpicklingError):
            # The pipe broke.
            stalled = CompileError(
                f"a compile worker did not finish {module.name} within {_SECONDS_PER_MODULE:g} s",
                hint="a kernel may be unrolled too far; HIDET_DUMP=<folder> keeps its text",
            )
            raise self._process.failure(module.name, stalled) from None
        if isinstance(answer, Refusal):
            raise answer.error()
        return module if answer is None else answer

    def kill(self) -> None:
        """End the process, from any thread; a `compile` under way fails."""
        self._process.kill()

    def close(self) -> None:
        """Wait for the end of the process, and close its pipes."""
        self._process.close()
