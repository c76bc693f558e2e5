"""`CompiledGraph`: what `hidet.compile` returns."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hidet.notebook import Shown
from hidet.plugins.attributes import member
from hidet.runtime.adapter import CheckedAdapter
from hidet.runtime.arguments import ArgumentCheck
from hidet.runtime.copied import run_copied
from hidet.runtime.executor import Executor, SegmentFunction
from hidet.runtime.parameter_sets import ParameterSets
from hidet.runtime.program import HostProgram, NodeCounts
from hidet.runtime.report_text import report_text
from hidet.runtime.signature import Signature, returned, signature_of_inputs

if TYPE_CHECKING:
    from hidet.target import Binary, DeviceMemory, DeviceWork


@dataclass(frozen=True, slots=True)
class ProgramUse:
    """A program that a compiled graph runs.

    symbol: what the names of its kernels begin with. rule: the schedule that built it. tasks: for each task that it
    computes, the anchor with the types of its inputs. owner: the plug-in that the schedule is of.
    """

    symbol: str
    rule: str
    tasks: tuple[str, ...]
    owner: str = ""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class CompileReport(Shown):
    """What a compilation did.

    nodes: graph nodes by class. kernels: distinct kernels of the graph itself, its prepare program aside. tasks: fusion
    groups; programs: how many different ones a rule built; modules: how many modules were compiled, or taken from the
    kernel cache (cached_modules). seconds: time by phase ("graph", "build", "compile", "load"). notes: rules skipped
    and why. weight_bytes, prepared_bytes: parameters and constants as given, and what the prepare program keeps beside
    them; tensors of symbolic size are not counted. graph_nodes: nodes of the graph as it was given. build_seconds: CPU
    time that each program took to build, by the kind of its task: "injective" or "template". chosen: how many tasks
    have parameters that a plug-in chose, by the reason that it gave. is_kept: the graph came out of the cache as a
    whole: no step was taken but "cache" and "load", and the rest is as when it was compiled.
    """

    nodes: NodeCounts
    kernels: int
    tasks: int = 0
    programs: int = 0
    modules: int = 0
    cached_modules: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    weight_bytes: int = 0
    prepared_bytes: int = 0
    graph_nodes: int = 0
    build_seconds: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    uses: tuple[ProgramUse, ...] = ()
    chosen: Mapping[str, int] = field(default_factory=dict)
    is_kept: bool = False

    def __str__(self) -> str:
        return report_text(self)

    def __getattr__(self, name: str) -> Any:
        """What plug-ins add."""
        return member(self, "hidet.runtime.CompileReport", name)


@dataclass(frozen=True, slots=True)
class CodeBundle:
    """Everything needed to run or save a compiled graph: the program, its binaries and its constants' arrays.

    signature: how the model that it was is called; None for a graph, which is called with its inputs.
    """

    program: HostProgram
    binaries: tuple[Binary, ...]
    constants: tuple[Any, ...]
    prepare_constants: tuple[Any, ...] = ()
    target: str = "cpu"
    arch: str = ""
    signature: Signature | None = None


_OF_LOADED_CODE = frozenset({"_check", "_code", "_executor", "_memory", "_parameters"})


@dataclass(frozen=True, slots=True, eq=False)
class RecordedCall:
    """A call of a graph as one piece of work of its device. Launches read and write the same memory.

    held: what keeps that memory alive.
    """

    work: DeviceWork
    held: object

    def launch(self, stream: int) -> None:
        """Put it into a stream of the device."""
        self.work.launch(stream)


class CompiledGraph(Shown):
    """A callable model. Results are fresh tensors; several threads may call it at once."""

    def __init__(
        self,
        bundle: CodeBundle,
        functions: Mapping[str, SegmentFunction],
        report: CompileReport,
        keep_alive: object = None,
        memory: DeviceMemory | None = None,
        replay_after: int | None = None,
        before_use: Callable[[], None] | None = None,
        load: Callable[[], CompiledGraph] | None = None,
    ) -> None:
        """memory: of the device the code runs on; None for the host. replay_after: how often a call runs there as it is
        before it is captured, to be replayed as one launch from then on; None captures none. before_use: called before
        the graph is run or saved, until it has returned once; what it raises ends the call. load: makes the graph with
        its code loaded, when it is first run; None where it is.
        """
        self.bundle = bundle
        self._before_use = before_use
        self._report = report
        program = bundle.program
        self.signature = bundle.signature or signature_of_inputs([given.name for given in program.inputs])
        self._direct = self.signature.direct(len(program.inputs))
        self._returned = self.signature.results
        if load is not None:
            self._load = load
            return
        self._code = keep_alive
        self._check = ArgumentCheck(program, memory, self.signature)
        self._memory = memory
        self._executor = Executor(program, functions, bundle.constants, memory, replay_after)
        self._parameters = None
        if any(given.is_parameter for given in program.inputs):
            self._parameters = ParameterSets(program)

    def __getattr__(self, name: str) -> Any:
        """What only a graph has whose code is loaded, which it is when that is first asked for; what plug-ins add."""
        load = self.__dict__.get("_load")
        if load is None or name not in _OF_LOADED_CODE:
            return member(self, "hidet.runtime.CompiledGraph", name)
        self.__dict__.update(load().__dict__)
        return self.__dict__[name]

    def __repr__(self) -> str:
        given = [
            f"{i.name}: int"
            if i.tensor is None
            else f"{i.name}: {i.tensor.dtype.short}[{', '.join(map(str, i.tensor.shape))}]"
            for i in self.bundle.program.inputs
        ]
        kernels = f"{self._report.kernels} kernels for {self.bundle.target}"
        return f"<{type(self).__name__}({', '.join(given)}), {kernels}>"

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run on numpy arrays, or tensors of an installed front-end's framework, as the model was called; a graph is
        called with its inputs in order, or by their names.

        Numbers that were in the example of a model are fixed, and tensors that nothing reads are ignored. Results are
        tensors of the same library, in the model's structure; a graph's single one is bare, several are a tuple.
        Arguments that lie otherwise in memory than the graph was compiled for are copied. On a device, tensors have to
        be there; arrays that share their memory (DLPack, CUDA array interface) give arrays of `hidet.cuda`. numpy
        arrays alone, and tensors of a library that has none on that device, are copied there, and results back, for
        which the call waits. ShapeError, DTypeError or LaunchError
        names the argument that does not fit.
        """
        inputs: Sequence[Any] = arguments
        if named or len(arguments) != self._direct:
            inputs = self.signature.arranged(arguments, named, len(self.bundle.program.inputs))
        results = self.call_on_inputs(inputs)
        if self._returned is None:
            return results
        return returned(self._returned, results if isinstance(results, tuple) else (results,))

    def call_on_inputs(self, inputs: Sequence[Any]) -> Any:
        """As a call, on the inputs of the graph in order, whatever else the model takes."""
        adapter, arguments = self._check(inputs)
        results = self.run(arguments, adapter)
        if adapter.finished is not None:
            outputs = [output for output in self.bundle.program.outputs if output.mutates is None]
            for number, output in enumerate(outputs):
                if output.tensor is not None:
                    results[number] = adapter.finished(results[number])
        return results[0] if len(results) == 1 else tuple(results)

    def run(self, arguments: Sequence[Any], adapter: CheckedAdapter) -> list[Any]:
        """Run without checks on tensors of `adapter`'s library; those of the host are copied to the device that the
        graph is for, where that has memory of its own, and results back."""
        if self._before_use is not None:
            self.require_usable()
        memory = self._memory
        if memory is not None and adapter.is_host:
            return run_copied(self.bundle.program, arguments, adapter, memory, self.run)
        parameters, executor = self._parameters, self._executor
        if parameters is None:
            return executor.run(arguments, adapter)
        if executor.may_guess:
            # Whether the parameters are the same tensors is asked while the device works already. They mostly are, and
            # what it did with those before is done again otherwise, in the same order of the same stream.
            expected = parameters.expected(arguments, adapter)
            results = None if expected is None else executor.guess(arguments, adapter, expected)
            if expected is not None and results is not None:
                if parameters.are_in(expected, arguments, adapter):
                    return results
                parameters.expect_nothing()
        # Held until the call ends: another thread may replace the state with that of other parameters.
        state = parameters.state(arguments, adapter)
        return executor.run(arguments, adapter, state)

    def record(self, inputs: Sequence[Any]) -> RecordedCall | None:
        """A call that was made before, on the inputs of the graph in order, as work of its device to be launched again.

        None on the host, for arrays of the host, on a device that records nothing, and for a graph that runs from
        Python in part.
        """
        adapter, arguments = self._check(inputs)
        if adapter.is_host:
            return None
        parameters = None if self._parameters is None else self._parameters.state(arguments, adapter)
        recorded = self._executor.record(arguments, adapter, parameters)
        return None if recorded is None else RecordedCall(*recorded)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file that `hidet.load` runs where only hidet-core and the target's wheel are installed.

        ArtifactError when the graph has operators that run outside compiled code.
        """
        from hidet.runtime.artifact import save

        self.require_usable()
        save(self.bundle, path)

    def __reduce__(self) -> tuple[Callable[[bytes], CompiledGraph], tuple[bytes]]:
        """A pickled or copied graph is what `save` writes and `hidet.load` gives, and as self-contained."""
        from hidet.runtime.artifact import from_bytes, to_bytes

        self.require_usable()
        return from_bytes, (to_bytes(self.bundle),)

    def require_usable(self) -> None:
        """Call what is to be called before the graph is used."""
        before_use = self._before_use
        if before_use is not None:
            before_use()
            self._before_use = None

    def captured(self) -> tuple[int, int]:
        """How many calls are captured on the device, and the bytes that they keep there."""
        replays = self._executor.replays
        instances = () if replays is None else replays.instances
        arenas = {id(instance.execution.arena): instance.execution.nbytes for instance in instances}
        return len(instances), sum(arenas.values()) + sum(instance.copied for instance in instances)

    def report(self) -> CompileReport:
        """What the compilation did."""
        return self._report
