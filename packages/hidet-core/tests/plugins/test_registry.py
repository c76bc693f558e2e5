"""Lookups, priorities and order in the registry."""

from __future__ import annotations

import pytest

from hidet.errors import ImportFailed, OptionError, UnsupportedOp
from hidet.plugins.host import discover
from hidet.plugins.registry import Registry

SOURCE = """
from hidet.graph.operator import OperatorSpec
from hidet.plugins import FrontendSpec, OptionSpec, PassSpec, ScheduleSpec, TargetSpec

def hidet_operators():
    return [
        OperatorSpec(name="spindle", inputs=("x",)),
        OperatorSpec(name="ring_frame", inputs=("x",), family="spinning"),
        OperatorSpec(name="mule", inputs=("x",), family="spinning"),
    ]

def hidet_schedules():
    return [
        ScheduleSpec(name="any", ops=("*",), targets=("*",), priority=-10, load="json:loads"),
        ScheduleSpec(name="plain", ops=("spindle",), targets=("loom",), load="json:loads"),
        ScheduleSpec(name="better", ops=("spindle", "bobbin"), targets=("loom",), priority=105, load="json:loads"),
        ScheduleSpec(name="also_plain", ops=("spindle",), targets=("loom",), load="json:loads"),
        ScheduleSpec(name="spin", ops=("mule", "family:spinning"), targets=("loom",), priority=101, load="json:loads"),
        ScheduleSpec(name="elsewhere", ops=("spindle",), targets=("mill",), priority=109, load="json:loads"),
    ]

def hidet_targets():
    return [
        TargetSpec(name="loom", aliases=("weaver",), load="json:loads"),
        TargetSpec(name="mill", aliases=("loom", "wheel"), load="json:loads"),
    ]

def hidet_options():
    return [OptionSpec(name="loom.speed", type=float, default=1.0, doc="Speed.", affects_cache=False)]

def hidet_passes():
    return [
        PassSpec(name="card", level="graph", load="json:loads"),
        PassSpec(name="spin", level="graph", before=("card",), load="json:loads"),
        PassSpec(name="knot", level="graph", after=("card",), before=("spin",), load="json:loads"),
        PassSpec(name="dye", level="graph", after=("spni",), load="json:loads"),
    ]

def hidet_frontends():
    return [FrontendSpec(name="yarn", accepts=lambda model: model.is_yarn, load="json:loads")]
"""


@pytest.fixture
def registry(install_plugin) -> Registry:
    install_plugin("textile", SOURCE)
    return discover("textile")


def problems(registry: Registry) -> list[str]:
    return [problem.message for record in registry.plugins for problem in record.problems]


def test_schedules_come_by_falling_priority_then_registration(registry) -> None:
    mine = ("any", "plain", "better", "also_plain", "elsewhere")
    names = [spec.name for spec in registry.schedules_for("spindle", "loom") if spec.name in mine]
    assert names == ["better", "plain", "also_plain", "any"]


KINDS = """
from hidet.plugins import PassSpec, RewriteSpec, ScheduleSpec, TargetSpec

def hidet_targets():
    yield TargetSpec(name="abacus", kind="cpu", load="json:loads")
    yield TargetSpec(name="loom", kind="gpu", load="json:loads")
    yield TargetSpec(name="mill", load="json:loads")

def hidet_schedules():
    yield ScheduleSpec(name="s.cpu", ops=("softmax",), kinds=("cpu",), load="json:loads")
    yield ScheduleSpec(name="s.both", ops=("softmax",), kinds=("cpu", "gpu"), load="json:loads")
    yield ScheduleSpec(name="s.more", ops=("softmax",), kinds=("gpu",), targets=("mill",), load="json:loads")

def hidet_passes():
    yield PassSpec(name="p.gpu", level="program", kinds=("gpu",), load="json:loads")
    yield PassSpec(name="p.all", level="program", load="json:loads")

def hidet_rewrites():
    yield RewriteSpec(name="r.cpu", stage="simplify", kinds=("cpu",), load="json:loads")
"""


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("abacus", ["s.cpu", "s.both", "p.all", "r.cpu"]),
        ("loom", ["s.both", "s.more", "p.gpu", "p.all"]),
        ("mill", ["s.more", "p.all"]),
        ("unregistered", ["p.all"]),
    ],
)
def test_what_is_for_a_kind_serves_every_target_that_states_it(install_plugin, target, found) -> None:
    """plugin-friction.md section 7, change 9: no pack for "cpu" served a second CPU target."""
    install_plugin("kinds", KINDS)
    registry = discover("kinds")
    assert not problems(registry)
    specs = [
        *registry.schedules_for("softmax", target),
        *registry.passes_for("program", target),
        *registry.rewrites_for("simplify", target),
    ]
    assert [spec.name for spec in specs if spec.name[:2] in ("s.", "p.", "r.")] == found


@pytest.mark.parametrize("member", ["ring_frame", "mule"])
def test_a_schedule_for_a_family_is_asked_once_for_each_of_its_operators(registry, member) -> None:
    names = [spec.name for spec in registry.schedules_for(member, "loom")]
    assert names[:1] == ["spin"] and names.count("spin") == 1
    assert "spin" not in [spec.name for spec in registry.schedules_for("spindle", "loom")]


def test_an_operator_nobody_schedules_gets_the_rules_for_all(registry) -> None:
    assert "any" in [spec.name for spec in registry.schedules_for("unheard_of", "unheard_of")]


def test_an_unknown_operator_names_the_nearest(registry) -> None:
    with pytest.raises(UnsupportedOp, match=r"operator 'spindel' is unknown\nhint: did you mean 'spindle'"):
        registry.operator("spindel")


def test_an_unknown_target_names_the_nearest(registry) -> None:
    with pytest.raises(OptionError, match=r"target 'lom' is unknown\nhint: did you mean 'loom'"):
        registry.target("lom")


def test_an_unknown_option_names_the_nearest(registry) -> None:
    with pytest.raises(OptionError, match=r"option 'loom.sped' is unknown\nhint: did you mean 'loom.speed'"):
        registry.option("loom.sped")


def test_an_alias_that_is_taken_is_refused_and_the_target_stays(registry) -> None:
    assert registry.target("weaver").name == "loom"
    assert registry.target("wheel").name == registry.target("mill").name == "mill"
    assert "alias 'loom' of target 'mill' refused: target 'loom' has it" in problems(registry)


def test_a_pass_that_contradicts_the_others_is_refused_with_the_cycle(registry) -> None:
    names = [spec.name for spec in registry.passes_for("graph", "loom")]
    assert "knot" not in names and names.index("spin") < names.index("card")
    (message,) = [text for text in problems(registry) if "contradict" in text]
    assert message.startswith("pass 'knot' refused: passes contradict each other: ")
    assert all(f"'{name}'" in message for name in ("card", "spin", "knot"))


def test_an_order_by_an_unknown_pass_is_a_remark_with_the_nearest(registry) -> None:
    (remark,) = [problem for record in registry.plugins for problem in record.problems if "'dye'" in problem.message]
    assert remark.is_remark
    assert "'spni', which no graph pass is called; did you mean 'spin'?" in remark.message


def test_a_front_end_that_raises_does_not_hide_that_nobody_accepts(registry) -> None:
    with (
        pytest.warns(match=r"front-end 'yarn': accepts raised AttributeError"),
        pytest.raises(
            ImportFailed, match=r"no front-end accepts an object of type builtins.int; known front-ends: .*'yarn'"
        ),
    ):
        registry.frontend_for(7)


def test_a_file_that_nobody_reads_is_named_with_what_the_front_ends_take(registry) -> None:
    with (
        pytest.warns(match=r"front-end 'yarn'"),
        pytest.raises(ImportFailed, match=r"no front-end accepts the path 'x.npy'; .*'text' takes .* ending in .hir"),
    ):
        registry.frontend_for("x.npy")


def test_an_unknown_option_of_a_plugin_is_advised_by_all_options(registry) -> None:
    with pytest.raises(OptionError, match=r"option 'cuda.x' is unknown\nhint: known: .*loom.speed.*threads"):
        registry.option("cuda.x", ["threads"])


def test_a_replaced_pass_keeps_its_place_and_its_name_for_ordering(install_plugin) -> None:
    install_plugin("textile", SOURCE)
    install_plugin(
        "xtra",
        """
        from hidet.plugins import PassSpec
        def hidet_passes():
            return [
                PassSpec(name="comb", level="graph", replaces="card", load="json:dumps"),
                PassSpec(name="early", level="graph", before=("card",), load="json:dumps"),
            ]
        """,
    )
    registry = discover("textile,xtra")
    names = [spec.name for spec in registry.passes_for("graph", "loom")]
    mine = [name for name in names if name in ("spin", "comb", "card", "early", "dye")]
    assert mine == ["spin", "early", "comb", "dye"]
    assert "card" not in registry.passes


def test_the_registry_cannot_be_changed(registry) -> None:
    with pytest.raises(TypeError):
        registry.targets["new"] = registry.target("loom")
    with pytest.raises(AttributeError):
        registry.targets = {}
