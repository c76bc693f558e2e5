"""Trials on a Ray cluster: programs are compiled on every node, and measured by one actor a device.

What crosses between processes is text of JSON, and machine code as the kernel cache keeps it: under a key that names
what it was made from, with a checksum. Nodes may be lost at any moment. What a lost node was asked is asked again; an
actor begins anew where there is room for it, which may be a node that has come back.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hidet.cache import CacheKey, KernelCache
from hidet.context import CompileContext, make_context
from hidet.errors import CompileError, HidetError, OptionError
from hidet.tuning.loaded import compile_program
from hidet.tuning.measuring import Measurer
from hidet.tuning.trial import Outcome, ProgramText, Settings, Trial, outcome_from, program_from, trial_from

ATTEMPTS = 3
"""Nodes that may be lost with a trial before it is given up: it may be what ends them."""

MOST_BUILDS = 1024
"""Programs whose code is kept in the cluster."""

_PATIENCE = 10.0
"""Seconds for which a measurement waits for code that other nodes compile, before the measuring node does."""

_CLOSING = 5.0
"""Seconds that actors get to delete their files, before they are ended."""

Entries = list[tuple[bytes, bytes]]
"""Keys and payloads of a kernel cache."""


class RayExecutor:
    """Has the nodes of a Ray cluster compile programs, and an actor for each of its GPUs measure them; for programs of
    a CPU, one actor on a node with the same processor as this one.

    A cluster is found as Ray finds it: one that this process is connected to, RAY_ADDRESS, else a new one on this
    machine. Each node needs hidet-tune in the same version. OptionError where Ray is not installed.
    """

    def __init__(self, settings: Settings, seconds: float) -> None:
        try:
            import ray
        except ImportError as error:
            raise OptionError(
                "tuning executor 'ray' needs Ray, which is not installed", hint="pip install 'hidet-tune[ray]'"
            ) from error
        self._ray: Any = ray
        self._settings = settings
        self._seconds = seconds
        self._arch = make_context(settings.target, settings.options).target.arch
        self._is_owner = False
        self._build: Any = None
        self._devices: list[_Device] = []
        self._builds: dict[str, Any] = {}
        self._waiting: list[Trial] = []
        self._done: dict[Trial, Outcome] = {}
        self._is_stuck = False
        self._device = ""

    def __enter__(self) -> Self:
        ray = self._ray
        if not ray.is_initialized():
            ray.init(log_to_driver=False, logging_level="ERROR")
            self._is_owner = True
        self._build = ray.remote(num_cpus=1, max_retries=ATTEMPTS, scheduling_strategy="SPREAD")(_build)
        count, needs = _room(ray, self._settings)
        make = ray.remote(max_restarts=-1, max_task_retries=ATTEMPTS - 1, **needs)(_MeasuringActor)
        given = json.dumps(asdict(self._settings)), self._arch, self._seconds
        self._devices = [_Device(make.remote(*given)) for _ in range(count)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        closing = [device.actor.close.remote() for device in self._devices if device.trial is None]
        if closing:
            self._ray.wait(closing, num_returns=len(closing), timeout=_CLOSING)
        for device in self._devices:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.kill(device.actor)
        for build in self._builds.values():
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.cancel(build, force=True)
        self._devices, self._builds = [], {}
        if self._is_owner:
            self._ray.shutdown()

    @property
    def device(self) -> str:
        """What measured last."""
        return self._device

    @property
    def compiles_ahead(self) -> bool:
        """Nodes do."""
        return True

    def announce(self, trials: Sequence[Trial]) -> None:
        """Have nodes compile the programs, and actors that have nothing to do measure."""
        self._waiting = [trial for trial in trials if trial not in self._done and not self._is_measured(trial)]
        self._done = {trial: outcome for trial, outcome in self._done.items() if trial in set(trials)}
        for trial in trials:
            for program in trial.programs:
                self._build_of(program)
        for code in list(self._builds)[:-MOST_BUILDS]:
            del self._builds[code]
        self._feed()

    def run(self, trial: Trial, most: float | None = None) -> Outcome:
        """The outcome, by any of the actors. One that has measured it ahead has the answer ready."""
        end = time.monotonic() + (most if most is not None else ATTEMPTS * self._seconds + _PATIENCE)
        if trial not in self._done and not self._is_measured(trial):
            self._waiting = [trial, *(other for other in self._waiting if other != trial)]
        while trial not in self._done:
            self._feed()
            if not self._devices:
                raise CompileError(
                    "no node of the Ray cluster has a device to measure on as this process compiles for",
                    hint=f"expected {self._settings.target} with {self._arch}",
                )
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"a trial has not ended on the Ray cluster within {most or self._seconds:.1f} s")
            self._collect(left)
        return self._done.pop(trial)

    def _is_measured(self, trial: Trial) -> bool:
        return any(device.trial == trial for device in self._devices)

    def _build_of(self, program: ProgramText) -> Any:
        """What will be the code of a program."""
        if program.code not in self._builds:
            given = json.dumps(asdict(self._settings)), self._arch, json.dumps(asdict(program))
            self._builds[program.code] = self._build.remote(*given)
        return self._builds[program.code]

    def _feed(self) -> None:
        """Give trials that wait to actors that have none."""
        for device in self._devices:
            if device.trial is None and self._waiting:
                self._ask(device, self._waiting.pop(0))

    def _ask(self, device: _Device, trial: Trial) -> None:
        # Programs that differ in their arguments alone share their code.
        builds = list({program.code: self._build_of(program) for program in trial.programs}.values())
        ready, late = self._ray.wait(builds, num_returns=len(builds), timeout=0.0 if self._is_stuck else _PATIENCE)
        # Where no node has room for compiling, measurements do not wait for it again until one has had.
        self._is_stuck = bool(late)
        device.trial = trial
        # In a list, references are handed on as they are, and not waited for.
        device.answer = device.actor.measure.remote(json.dumps(asdict(trial)), ready)

    def _collect(self, seconds: float) -> None:
        """Wait for an answer, or for as many seconds."""
        busy = [device for device in self._devices if device.trial is not None]
        ready, _ = self._ray.wait([device.answer for device in busy], timeout=seconds)
        for device in busy:
            if device.answer not in ready:
                continue
            trial, device.trial = device.trial, None
            assert trial is not None
            try:
                answer = json.loads(self._ray.get(device.answer))
            except self._ray.exceptions.RayError as error:
                # Ray has asked again elsewhere, and lost that node too.
                reason = f"the node that measured it was lost {ATTEMPTS} times: {type(error).__name__}"
                self._done[trial] = Outcome(failure=reason)
                continue
            if answer["refusal"]:
                self._devices.remove(device)
                self._ray.kill(device.actor)
                self._waiting.insert(0, trial)
                continue
            self._device = answer["device"]
            self._done[trial] = outcome_from(answer["outcome"])


@dataclass(slots=True, eq=False)
class _Device:
    """An actor, and what it measures at the moment."""

    actor: Any
    trial: Trial | None = None
    answer: Any = None


class _MeasuringActor:
    """Has a device to itself, and a process that measures on it, which may crash."""

    def __init__(self, settings: str, arch: str, seconds: float) -> None:
        given = Settings(**json.loads(settings))
        # Ray shows each actor its own device, which is the first one there.
        self._settings = replace(given, target=given.target.partition(":")[0], cache=True)
        self._folder = tempfile.TemporaryDirectory(prefix="hidet-tune-")
        os.environ["HIDET_CACHE_DIR"] = self._folder.name
        ctx = make_context(self._settings.target, {**self._settings.options, "threads": self._settings.threads})
        self._cache = ctx.cache
        self._refusal = "" if ctx.target.arch == arch else f"{ctx.target.arch} is here, expected {arch}"
        self._measurer = Measurer(self._settings, seconds)

    def measure(self, trial: str, builds: Sequence[Any]) -> str:
        """The outcome of a trial as JSON, with what measured; with a refusal where the device is of another kind."""
        import ray

        if self._refusal:
            return json.dumps({"refusal": self._refusal})
        for build in builds:
            # Code that is lost with its node is compiled here.
            with contextlib.suppress(ray.exceptions.RayError):
                for key, payload in ray.get(build, timeout=_PATIENCE):
                    self._cache.put(CacheKey.from_json(key), payload)
        outcome = self._measurer.run(trial_from(json.loads(trial)))
        return json.dumps({"refusal": "", "device": self._measurer.device, "outcome": asdict(outcome)})

    def close(self) -> None:
        """End the process, and delete its files."""
        self._measurer.__exit__()
        self._folder.cleanup()


def _build(settings: str, arch: str, program: str) -> Entries:
    """Compile a program. Gives the entries of the kernel cache that it takes; none where that cannot be done here."""
    given = Settings(**json.loads(settings))
    with tempfile.TemporaryDirectory(prefix="hidet-tune-") as folder:
        try:
            ctx = _context_for(given, arch)
            if ctx is None:
                return []
            cache = KernelCache(Path(folder))
            text = program_from(json.loads(program))
            compile_program(text, replace(ctx, cache=cache), ctx.registry.intrinsic_rows())
        except HidetError:
            return []  # whoever measures it finds out why
        return [(entry.key.to_json(), cache.get(entry.key) or b"") for entry in cache.entries()]


def _context_for(settings: Settings, arch: str) -> CompileContext | None:
    """A context that makes the same code as the one that is tuned for; None where there is no such thing on this node:
    another processor, another version."""
    name = settings.target.partition(":")[0]
    options = {**settings.options, "threads": settings.threads}
    # A node without the device compiles for it by the name of its architecture.
    for target in (name, f"{name}:{arch.partition(',')[0]}"):
        with contextlib.suppress(HidetError):
            ctx = make_context(target, options)
            if ctx.target.arch == arch:
                return ctx
    return None


def _room(ray: Any, settings: Settings) -> tuple[int, Mapping[str, float]]:
    """How many actors measure, and what each of them needs of a node."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if make_context(settings.target, settings.options).target.memory is not None:
        return max(int(sum(node.get("GPU", 0) for node in nodes)), 1), {"num_gpus": 1, "num_cpus": 1}
    # On a CPU, what is compiled beside a measurement disturbs it: where there are several nodes, one is for that alone.
    sizes = sorted(node.get("CPU", 0) for node in nodes if node.get("CPU", 0) >= settings.threads)
    return 1, {"num_cpus": sizes[0] if len(sizes) > 1 else settings.threads}
