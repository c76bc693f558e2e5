"""What a schedule rule is: match a task, offer parameters, build a program."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from hidet.dims import Dim
from hidet.ir.func import Module
from hidet.schedule.space import Params, Space

if TYPE_CHECKING:
    from hidet.context import CompileContext
    from hidet.graph.graph import Node, Value
    from hidet.schedule.task import Task

Data = TypeVar("Data")

_NONE: Any = None  # whatever Data is: rules that find out nothing leave it away


@dataclass(frozen=True, slots=True, eq=False)
class Match(Generic[Data]):
    """A rule's claim on a task. `data` is what `build` needs (immutable, private to the rule)."""

    task: Task
    data: Data = _NONE


class HigherIR(Protocol):
    """A kernel in a representation above thread IR, such as one in tiles. Dumped and verified as all IR is."""

    @property
    def name(self) -> str:
        """The kernel's name."""

    @property
    def ending(self) -> str:
        """The ending of its file in a dump, ".tile"."""

    def text(self) -> str:
        """As text, which a parser of its own reads back."""

    def verify(self) -> None:
        """Raise VerifyError for the first rule of its representation that it breaks."""


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A scheduled task as thread IR.

    module: its entry is a host function whose parameters are pointers to the task's inputs, then its outputs, then
        scratch buffers, then the i64 `arguments`.
    arguments: sizes and strides passed at every call. Programs that differ only here share one compiled kernel.
    scratch: bytes of each scratch buffer, aligned to 64.
    lowered_from: kernels of the module as the rule had them before thread IR.
    """

    module: Module
    arguments: tuple[Dim, ...] = ()
    scratch: tuple[Dim, ...] = ()
    lowered_from: tuple[HigherIR, ...] = ()


class ScheduleRule(Protocol[Data, Params]):
    """A schedule. Data: what `match` finds out for `build`. Params: what may be chosen about the program.

    ctx: the compilation, with `ctx.target`, and `ctx.option(name)` for options that the rule's plug-in offers.
    """

    def match(self, task: Task, ctx: CompileContext) -> Match[Data] | None:
        """Whether this rule can schedule `task`; None means "not mine". Cheap, exact about shapes, dtypes and layouts.
        ScheduleError instead of None tells why in the report."""

    def space(self, match: Match[Data], ctx: CompileContext) -> Space[Params]:
        """Everything that may be chosen about the program, the default among it: all of it builds and is right.
        `Space.empty()` where nothing may be."""

    def default(self, match: Match[Data], ctx: CompileContext) -> Params:
        """Good parameters without tuning: a point of the space, unless that is empty."""

    def predict(self, match: Match[Data], params: Params, ctx: CompileContext) -> float | None:
        """Seconds that a call of the program takes by the rule's cost model, on the device of `ctx`; None where it has
        no model. Rules need not have this method."""
        return None

    def build(self, match: Match[Data], params: Params, ctx: CompileContext) -> Program:
        """The program. ScheduleError when the task turns out impossible, with the reason."""


class ChoosingRule(ScheduleRule[Data, Params], Protocol[Data, Params]):
    """A schedule for anchors some of whose operands it computes itself, such as a weight from its codes: a spec with
    `prologue="chosen"` is for those alone."""

    def computed_operands(self, anchor: Node, producer: Mapping[Value, Node], ctx: CompileContext) -> frozenset[int]:
        """The numbers of the anchor's inputs whose producers are worth joining to it; none where this rule would not
        take the task. Asked for every anchor, so cheap: `match` sees the fused task and says whether it is right.

        producer: the node that computes a value, for values of the graph that one computes.
        """


class FixedRule(ScheduleRule[Data, None], Protocol[Data]):
    """A schedule about which nothing may be chosen: subclasses have `match` and `build`, whose `params` is None."""

    def space(self, match: Match[Data], ctx: CompileContext) -> Space[None]:
        """Nothing to choose."""
        return Space.empty()

    def default(self, match: Match[Data], ctx: CompileContext) -> None:
        """No parameters."""


class SharingRule(ScheduleRule[Data, Params], Protocol[Data, Params]):
    """A schedule whose parameters often matter little, so that tasks of a graph may share programs
    (`hidet.schedule.shared_programs`)."""

    def rivals(self, match: Match[Data], ctx: CompileContext) -> Sequence[Params]:
        """Other parameters by which a task takes a few per cent longer at most than by the default ones, the best
        first."""

    def code_of(self, params: Params) -> Hashable:
        """What the code of programs depends on; the rest of the parameters are numbers that programs are called
        with."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice(Generic[Data, Params]):
    """A rule's match for a task with the parameters to build it with; `hidet_choose_schedule` chooses among them.

    is_foreign: whether the rule is of somebody else than hidet's own wheels, so that its programs are verified.
    reason: where the parameters come from, in a few words, where the rule did not choose them itself.
    """

    rule_name: str
    rule: ScheduleRule[Data, Params]
    match: Match[Data]
    params: Params
    is_foreign: bool = False
    reason: str = ""
