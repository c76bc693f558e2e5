"""What tuning has found, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from hidet.notebook import Shown
from hidet.report.roofline import Roofline


@dataclass(frozen=True, slots=True)
class TrialReport:
    """A measurement of a point, which may have several.

    params: the `repr` of its parameters. at: seconds since tuning began. ratio: the time of a call over the default's;
    None where it failed. failure: why. predicted: seconds of a call as the rule expects them; None where it says
    nothing.
    """

    params: str
    at: float
    ratio: float | None
    failure: str = ""
    predicted: float | None = None


@dataclass(frozen=True, slots=True)
class TaskReport:
    """A task of the model.

    summary: its anchor with the types that it reads. uses: how often the model computes it. rule: the schedule.
    default_params, params: the `repr` of parameters. default_seconds, seconds: of a call with them; None where none was
    measured. tried, points: how many points of the rule's space were tried, of how many. is_stored: whether an
    earlier tuning has found it. refused: points that cannot be used, with the reason. note: why nothing was measured.
    flops, nbytes: arithmetic operations of a call, and bytes that it reads and writes at least; 0 where they are not
    known. trials: measurements in order.
    """

    summary: str
    uses: int
    rule: str
    default_params: str = ""
    params: str = ""
    default_seconds: float | None = None
    seconds: float | None = None
    tried: int = 0
    points: int = 0
    is_stored: bool = False
    refused: tuple[str, ...] = ()
    note: str = ""
    flops: int = 0
    nbytes: int = 0
    trials: tuple[TrialReport, ...] = ()

    @property
    def is_changed(self) -> bool:
        """Whether other parameters than the default ones were chosen."""
        return self.params != self.default_params

    @property
    def gain(self) -> float | None:
        """How many times as fast the task is as by default; None where nothing was measured."""
        return self.default_seconds / self.seconds if self.default_seconds and self.seconds else None

    def __str__(self) -> str:
        start = f"{self.uses} x {self.summary}, {self.rule}"
        if self.note:
            return f"{start}: {self.note}"
        gain = f", {self.gain:.2f} times as fast" if self.is_changed and self.gain else ""
        result = f"{self.default_params} -> {self.params}{gain}" if self.is_changed else f"{self.params} stays"
        source = "from the store" if self.is_stored else f"{self.tried} of {self.points} points tried"
        refused = f", {len(self.refused)} refused" if self.refused else ""
        return f"{start}: {result} ({source}{refused})"


@dataclass(frozen=True, slots=True)
class TuneReport(Shown):
    """What became of tuning a model.

    compiled: the model, compiled with the choices: a `CompiledGraph`, or the model itself where torch.compile made it.
    store: the file that they are in. seconds: what it took.
    default_seconds, tuned_seconds: of a call of the model before and after, measured in turns; None where no task
    changed, or tuning was interrupted. is_dropped: whether no choice is used, as the whole model gained nothing above
    the noise of the rounds. is_interrupted: whether Ctrl-C ended it early. budget: seconds that it might take. device:
    what measured, "" where nothing did. roofline: what that can do; None where nobody knows. unmeasured: why the model
    as a whole was not measured; "" where it could be. unsaved: why the store could not keep what was found; "" where
    it has. phases: seconds by what was done.
    """

    compiled: Any = field(repr=False)
    tasks: tuple[TaskReport, ...]
    store: str
    seconds: float
    default_seconds: float | None = None
    tuned_seconds: float | None = None
    is_dropped: bool = False
    is_interrupted: bool = False
    budget: float = 0.0
    device: str = ""
    roofline: Roofline | None = None
    unmeasured: str = ""
    unsaved: str = ""
    phases: Mapping[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Numbers and texts alone."""
        tasks = [asdict(task) | {"gain": task.gain} for task in self.tasks]
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("compiled", "tasks", "roofline")}
        return {**own, "roofline": None if self.roofline is None else asdict(self.roofline), "tasks": tasks}

    def __str__(self) -> str:
        stored = sum(task.is_stored for task in self.tasks)
        lines = [
            *map(str, self.tasks),
            f"{stored} of {len(self.tasks)} tasks from the store {self.store}, {self.seconds:.1f} s",
        ]
        if self.default_seconds is not None and self.tuned_seconds is not None:
            verdict = (
                "no gain above the noise: all of these choices were dropped" if self.is_dropped else "used from now on"
            )
            lines.append(f"model: {self.default_seconds * 1e3:.3f} ms -> {self.tuned_seconds * 1e3:.3f} ms, {verdict}")
        if self.device:
            lines.append(f"measured on {self.device}")
        if self.phases:
            parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.phases.items())
            tried = sum(len(task.trials) for task in self.tasks)
            lines.append(f"{parts}; {tried} measurements")
        if self.unmeasured:
            lines.append(f"the model as a whole was not measured: {self.unmeasured}")
        if self.unsaved:
            lines.append(f"not kept beyond this process: {self.unsaved}")
        if self.is_interrupted:
            lines.append("interrupted: what was found is kept, and the model as a whole was not measured")
        return "\n".join(lines)
