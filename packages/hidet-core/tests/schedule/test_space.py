"""A space is all combinations of its knobs' values of which the constraints hold; a shortlist is its best part."""

from __future__ import annotations

from typing import Any

import pytest

from hidet.errors import PluginError
from hidet.schedule.rule import FixedRule, Match, ScheduleRule
from hidet.schedule.shortlist import predicted, shortlist, space_of
from hidet.schedule.space import Constraint, Knob, Space

NO_MATCH: Any = Match(None)  # type: ignore[arg-type]  # nothing looks at the task
NO_CTX: Any = None
ROWS, WORD = Knob("rows", (1, 2, 4), "rows of a block"), Knob("word", ("narrow", "wide"))
Pair = tuple[int, str]


def pair(rows: int, word: str) -> Pair:
    return rows, word


SPACE = Space((ROWS, WORD), pair)
NARROW = Space(
    (ROWS, WORD), pair, (Constraint[Pair]("wide words have a row", lambda p: p[1] == "narrow" or p[0] == 1),)
)


class Rows(ScheduleRule[None, int]):
    """A rule with a model, which says nothing of three rows."""

    def match(self, task, ctx):
        return None

    def space(self, match, ctx):
        return Space.of_knob(Knob("rows", (1, 2, 3, 4, 5)))

    def default(self, match, ctx):
        return 2

    def predict(self, match, params, ctx):
        return None if params == 3 else abs(params - 5) + 1.0

    def build(self, match, params, ctx):
        raise AssertionError("nothing is built")


class Plain:
    """A rule that derives from nothing and has no model."""

    def space(self, match, ctx):
        return Space.of_knob(Knob("rows", (4, 2, 1)))

    def default(self, match, ctx):
        return 1


class Fixed(FixedRule):
    def match(self, task, ctx):
        return None

    def build(self, match, params, ctx):
        raise AssertionError("nothing is built")


def test_points_come_in_the_order_of_knobs_and_values() -> None:
    assert list(SPACE) == [(1, "narrow"), (1, "wide"), (2, "narrow"), (2, "wide"), (4, "narrow"), (4, "wide")]
    assert next(iter(SPACE.points())) == ({"rows": 1, "word": "narrow"}, (1, "narrow"))
    assert (SPACE.size, SPACE.valid) == (6, 6)


def test_constraints_leave_points_out() -> None:
    assert list(NARROW) == [(1, "narrow"), (1, "wide"), (2, "narrow"), (4, "narrow")]
    assert (NARROW.size, NARROW.valid) == (6, 4)


def test_an_empty_space_has_no_points() -> None:
    empty: Space[int] = Space.empty()
    assert (list(empty), empty.size, empty.valid, bool(empty)) == ([], 0, 0, False)


def test_a_space_without_valid_points_is_not_empty() -> None:
    assert Space((ROWS,), int, (Constraint("never", lambda rows: False),))


def test_knobs_have_values_that_differ() -> None:
    with pytest.raises(PluginError, match=r"knob 'rows' has no values"):
        Knob("rows", ())
    with pytest.raises(PluginError, match=r"knob 'rows' has 2 twice"):
        Knob("rows", (2, 4, 2))


def test_knobs_of_a_space_have_names_that_differ() -> None:
    with pytest.raises(PluginError, match="a space has the knobs rows, rows"):
        Space((ROWS, ROWS), pair)


def test_a_shortlist_has_the_default_and_then_what_the_model_ranks_first() -> None:
    assert shortlist(Rows(), NO_MATCH, NO_CTX, 2) == [2, 5, 4]


def test_levels_of_search() -> None:
    assert shortlist(Rows(), NO_MATCH, NO_CTX, 2, level=0) == [2]
    assert shortlist(Rows(), NO_MATCH, NO_CTX, 2, level=1) == [2, 5, 4]
    assert shortlist(Rows(), NO_MATCH, NO_CTX, 2, level=2) == [2, 5, 4, 1, 3]


def test_a_shortlist_without_a_model_begins_beside_the_default() -> None:
    class Words(Plain):
        def space(self, match, ctx):
            return SPACE

        def default(self, match, ctx):
            return 2, "wide"

    rule: Any = Words()
    assert predicted(rule, NO_MATCH, (4, "wide"), NO_CTX) is None
    assert shortlist(rule, NO_MATCH, NO_CTX, 3) == [(2, "wide"), (1, "wide"), (2, "narrow"), (4, "wide")]
    assert shortlist(rule, NO_MATCH, NO_CTX, 9)[4:] == [(1, "narrow"), (4, "narrow")]


def test_rules_that_derive_from_a_protocol_have_no_model_unless_they_say_so() -> None:
    assert predicted(Fixed(), NO_MATCH, None, NO_CTX) is None
    assert shortlist(Fixed(), NO_MATCH, NO_CTX, 3) == [None]


def test_what_is_no_space_is_refused_with_the_rule() -> None:
    class Old(Plain):
        def space(self, match, ctx):
            return [1, 2]

    rule: Any = Old()
    with pytest.raises(PluginError, match=r"space\(\) of rule Old returned a list, expected a Space"):
        space_of(rule, NO_MATCH, NO_CTX)
