"""Fewer programs for a graph: tasks take parameters that are about as good when others use their program already."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from hidet.errors import PluginError, ScheduleError, VerifyError
from hidet.ir.structural import structural_hash
from hidet.ir.types import PointerType
from hidet.ir.verify import verify_module
from hidet.schedule.rule import Choice, Data, Program, SharingRule
from hidet.schedule.space import Params

if TYPE_CHECKING:
    from hidet.context import CompileContext
    from hidet.schedule.task import Task

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """A task's program, the choice that it was built by, and the hash of its module.

    is_default: whether its parameters are the rule's own; those that somebody else chose are not exchanged.
    """

    choice: Choice[Any, Any]
    program: Program
    digest: str
    is_default: bool = True


class Tried(Protocol):
    """What a call of a choice's method, called by its name, returns; None where it fails."""

    def __call__(self, choice: Choice[Any, Any], what: str, call: Callable[[], Result], /) -> Result | None: ...


def none_where_impossible(choice: Choice[Any, Any], what: str, call: Callable[[], Result]) -> Result | None:
    """`Tried` for rules that raise nothing but ScheduleError."""
    try:
        return call()
    except ScheduleError:
        return None


def build(choice: Choice[Data, Params], ctx: CompileContext, *, is_default: bool = True) -> Built:
    """The program of a choice. ScheduleError when it turns out impossible.

    What its kernels were lowered from is verified where the context says so, their thread IR when passes take it.
    PluginError when the rule makes none, VerifyError when a foreign rule makes one that breaks a rule of the IR.
    """
    program: object = choice.rule.build(choice.match, choice.params, ctx)
    if not isinstance(program, Program):
        raise PluginError(f"it returned a {type(program).__name__}, expected a hidet.schedule.Program")
    if choice.is_foreign:
        verify_program(program, choice.match.task)
    elif ctx.options.verify:
        _verify_higher_ir(program)
    return Built(choice, program, structural_hash(program.module), is_default)


def verify_program(program: Program, task: Task) -> None:
    """Raise VerifyError where a program, or what its kernels were lowered from, breaks a rule of its IR, or where it
    cannot be called as programs of `task` are."""
    _verify_higher_ir(program)
    verify_module(program.module)
    params = program.module.function(program.module.entry).params
    pointers = len(task.inputs) + len(task.outputs) + len(program.scratch)
    are_pointers = [isinstance(param.type, PointerType) for param in params]
    if are_pointers != [True] * pointers + [False] * len(program.arguments):
        raise VerifyError(
            f"entry {program.module.entry} takes {', '.join(f'{p.name}: {p.type}' for p in params) or 'nothing'}; "
            f"expected {pointers} pointers ({len(task.inputs)} inputs, {len(task.outputs)} outputs, "
            f"{len(program.scratch)} scratch buffers) and then {len(program.arguments)} numbers"
        )


def _verify_higher_ir(program: Program) -> None:
    for kernel in program.lowered_from:
        kernel.verify()


def share_programs(
    built: Mapping[Key, Built], ctx: CompileContext, tried: Tried = none_where_impossible
) -> dict[Key, Built]:
    """The tasks' programs, as few modules as rivals of their parameters allow.

    Modules that few tasks use are given up first, each only if every task that uses it finds another one in use.
    tried: calls methods of rules.
    """
    found = dict(built)
    users: dict[str, list[Key]] = {}
    for key, own in built.items():
        users.setdefault(own.digest, []).append(key)
    for digest in sorted(users, key=lambda digest: len(users[digest])):
        in_use = [found[keys[0]] for other, keys in users.items() if other != digest]
        moved: dict[Key, Built] = {}
        for key in users[digest]:
            other = next(_in_use(found[key], in_use, ctx, tried), None)
            if other is None:
                break
            moved[key] = other
        else:
            del users[digest]
            found.update(moved)
            for key, other in moved.items():
                users[other.digest].append(key)
    return found


def _shares(rule: object) -> bool:
    """Whether a rule has the methods by which its tasks share programs. Other methods of a protocol may be missing."""
    return all(callable(getattr(rule, method, None)) for method in ("rivals", "code_of"))


def _kind(task: Task) -> tuple[object, ...]:
    """What tasks have in common of which one module may be, as far as it shows without building their programs."""
    return task.op_name, *[t.type.dtype for t in (*task.inputs, *task.outputs)]


def _in_use(own: Built, in_use: list[Built], ctx: CompileContext, tried: Tried) -> Iterator[Built]:
    """Programs by rivals of a task's parameters whose modules are in use, the best first."""
    choice = own.choice
    if not own.is_default or not _shares(choice.rule):
        return
    rule, kind = cast("SharingRule[Any, Any]", choice.rule), _kind(choice.match.task)

    def rivals() -> list[tuple[Any, set[str]]]:
        """Only rivals by whose parameters something is built can make a module that is there."""
        digests: dict[Hashable, set[str]] = {}
        for other in in_use:
            if other.choice.rule_name == choice.rule_name and _kind(other.choice.match.task) == kind:
                digests.setdefault(rule.code_of(other.choice.params), set()).add(other.digest)
        if not digests:
            return []
        found = [(params, digests.get(rule.code_of(params))) for params in rule.rivals(choice.match, ctx)]
        return [(params, known) for params, known in found if known is not None]

    for params, known in tried(choice, "rivals", rivals) or ():
        rival = tried(choice, "build", functools.partial(build, replace(choice, params=params), ctx))
        if rival is not None and rival.digest in known:
            yield rival
