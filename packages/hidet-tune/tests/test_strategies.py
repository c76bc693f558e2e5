"""Strategies on costs that are formulas: what they find, by how many measurements, and the same for the same seed."""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from hidet.errors import OptionError, PluginError
from hidet.plugins import PLUGIN_API, StrategySpec, use
from hidet.plugins.host import load_registry
from hidet.tuning.strategy import MOST_ROUNDS, Measurement, Point, Problem, Strategy, ranked, strategy_named
from hidet.tuning.strategy_evolution import Evolution
from hidet.tuning.strategy_learned import Learned
from hidet.tuning.strategy_orders import Exhaustive, RandomSearch, SuccessiveHalving

KNOBS: Mapping[str, Sequence[int]] = {
    "m": (16, 32, 64, 128),
    "n": (16, 32, 64, 128),
    "k": (8, 16, 32, 64),
    "warps": (2, 4, 8),
}
VALUES = [dict(zip(KNOBS, each, strict=True)) for each in itertools.product(*KNOBS.values())]
SIZES = (384, 512, 1024)


def seconds_of(knobs: Mapping[str, int], sizes: Sequence[int] = SIZES) -> float:
    """A product in tiles: work of whole tiles, traffic, and what the ratio of tile to warps costs."""
    m, n, k = sizes
    tiles = math.ceil(m / knobs["m"]) * math.ceil(n / knobs["n"])
    waves = math.ceil(tiles / 32)
    work = knobs["m"] * knobs["n"] * k / knobs["warps"] ** 0.8
    traffic = (knobs["m"] + knobs["n"]) * k * 24
    spills = max(1.0, knobs["m"] * knobs["n"] / knobs["warps"] / 2048) ** 2
    return waves * (work * spills + traffic + 4e4 / knobs["k"] * k / 64) * 1e-9


def predicted(knobs: Mapping[str, int]) -> float:
    """What a rule expects, which is wrong by up to 30 %."""
    return seconds_of(knobs) * (1 + 0.3 * math.sin(hash(tuple(knobs.values())) % 100))


@dataclass
class Bench:
    """Measures points of a problem with 1 % of noise. limit: rounds after which there is no time left."""

    problem: Problem
    limit: float = math.inf
    failing: frozenset[int] = frozenset()
    rounds: int = 0
    tried: list[int] = field(default_factory=list)
    noise: random.Random = field(default_factory=lambda: random.Random(1))

    def has_time(self) -> bool:
        return self.rounds < self.limit

    def measure(self, points: Sequence[int], rounds: int) -> dict[int, float]:
        found = {}
        for number in points:
            if not self.has_time():
                break
            self.rounds += rounds
            self.tried.append(number)
            if number not in self.failing:
                spread = self.noise.uniform(-0.01, 0.01) / math.sqrt(rounds)
                found[number] = self.exact(number) * (1 + spread)
        return found

    def exact(self, number: int) -> float:
        return seconds_of(self.problem.points[number].knobs, self.problem.sizes) / seconds_of(VALUES[0])

    @property
    def trials(self) -> int:
        return len(set(self.tried))

    def search(self, strategy: Strategy) -> int | None:
        return strategy.search(self.problem, self.measure, self.has_time)

    def loss(self, found: int | None) -> float:
        """How many times as long as the fastest point one takes."""
        assert found is not None
        return self.exact(found) / min(map(self.exact, range(len(self.problem.points))))


def problem(*, is_predicted: bool = False, known: Sequence[Measurement] = ()) -> Problem:
    shuffled = list(VALUES)
    random.Random(5).shuffle(shuffled)
    points = [Point(each, predicted(each) if is_predicted else None) for each in shuffled]
    return Problem(points, SIZES, known)


def strategies() -> list[Strategy]:
    return [SuccessiveHalving(), Exhaustive(), RandomSearch(), Evolution()]


@pytest.mark.parametrize(
    ("strategy", "is_predicted", "trials", "loss"),
    [
        (SuccessiveHalving(), True, 64, 1.03),
        (SuccessiveHalving(), False, 192, 1.01),
        (Exhaustive(), False, 192, 1.01),
        (RandomSearch(trials=96), False, 96, 1.1),
        (Evolution(), False, 96, 1.03),
        (Evolution(trials=48), True, 48, 1.03),
    ],
)
def test_a_strategy_finds_a_point_near_the_best_within_so_many_measurements(
    strategy, is_predicted, trials, loss
) -> None:
    bench = Bench(problem(is_predicted=is_predicted))
    found = bench.search(strategy)
    assert bench.loss(found) <= loss and bench.trials <= trials


def test_variation_finds_more_than_chance_by_as_many_measurements() -> None:
    losses = {kind: [] for kind in (RandomSearch, Evolution)}
    for kind, seed in itertools.product(losses, range(8)):
        bench = Bench(problem())
        losses[kind].append(bench.loss(bench.search(kind(trials=40, seed=seed))))
    assert sum(losses[Evolution]) < sum(losses[RandomSearch])


@pytest.mark.parametrize("strategy", strategies(), ids=lambda strategy: type(strategy).__name__)
def test_a_search_is_the_same_for_the_same_seed(strategy) -> None:
    first, second = Bench(problem()), Bench(problem())
    assert first.search(strategy) == second.search(strategy)
    assert first.tried == second.tried


@pytest.mark.parametrize("kind", [RandomSearch, Evolution])
def test_another_seed_tries_other_points(kind) -> None:
    first, second = Bench(problem()), Bench(problem())
    first.search(kind(seed=1, trials=24))
    second.search(kind(seed=2, trials=24))
    assert first.tried != second.tried


@pytest.mark.parametrize("strategy", strategies(), ids=lambda strategy: type(strategy).__name__)
@pytest.mark.parametrize("limit", [0, 1, 10, 60, 200])
def test_when_time_is_out_the_best_so_far_is_named_and_nothing_is_measured_any_more(strategy, limit) -> None:
    bench = Bench(problem(), limit=limit)
    found = bench.search(strategy)
    assert (found is None) == (limit == 0)
    assert bench.rounds <= limit + MOST_ROUNDS
    assert found is None or found in bench.tried


@pytest.mark.parametrize("strategy", strategies(), ids=lambda strategy: type(strategy).__name__)
def test_points_that_fail_are_never_named(strategy) -> None:
    best = min(range(len(VALUES)), key=Bench(problem()).exact)
    assert Bench(problem(), failing=frozenset({best})).search(strategy) not in (None, best)
    assert Bench(problem(), failing=frozenset(range(len(VALUES)))).search(strategy) is None


@pytest.mark.parametrize("strategy", strategies(), ids=lambda strategy: type(strategy).__name__)
@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_small_spaces_are_searched_whole(strategy, count) -> None:
    bench = Bench(Problem([Point({"m": 2**number}) for number in range(count)]))
    bench.exact = lambda number: 1.0 / (1 + number)
    assert bench.search(strategy) == (count - 1 if count else None)
    assert bench.trials == count


def test_points_without_a_prediction_rank_last_in_their_order() -> None:
    points = [Point(), Point(predicted=2.0), Point(), Point(predicted=1.0)]
    assert ranked(Problem(points)) == [3, 1, 0, 2]
    assert ranked(Problem(points, first=[2])) == [2, 3, 1, 0]


def test_halving_measures_what_rules_expect_to_be_fast_first_and_stops_where_nothing_better_comes() -> None:
    bench = Bench(problem(is_predicted=True))
    bench.search(SuccessiveHalving(wave=8, patience=1))
    assert bench.tried[:8] == ranked(bench.problem)[:8]
    assert bench.trials < len(VALUES) / 2


def test_halving_stops_early_where_nothing_is_faster_than_the_default() -> None:
    bench = Bench(problem(is_predicted=True))
    fast = bench.exact
    bench.exact = lambda number: 1 + fast(number)
    assert bench.search(SuccessiveHalving(wave=8, patience=2)) is not None
    assert set(bench.tried) == set(ranked(bench.problem)[:16])


def measured_on(*shapes: tuple[int, int, int]) -> list[Measurement]:
    chance = random.Random(3)
    return [
        Measurement(shape, knobs, seconds_of(knobs, shape) / seconds_of(VALUES[0], shape))
        for shape in shapes
        for knobs in chance.sample(VALUES, 48)
    ]


@pytest.fixture
def learned():
    pytest.importorskip("lightgbm")
    return Learned


def test_what_was_learned_on_a_space_finds_its_best_points(learned) -> None:
    bench = Bench(problem())
    assert bench.loss(bench.search(learned(trials=48))) <= 1.05
    assert bench.trials <= 48


def test_what_was_learned_on_other_sizes_finds_good_points_by_fewer_measurements(learned) -> None:
    known = measured_on((256, 512, 1024), (512, 512, 512), (384, 1024, 768), (768, 256, 1024))
    with_it, without = Bench(problem(known=known)), Bench(problem())
    assert with_it.loss(with_it.search(learned(trials=8))) <= 1.05
    assert without.loss(without.search(learned(trials=8))) > 1.2


def test_a_learned_search_is_the_same_for_the_same_seed_and_ends_with_its_time(learned) -> None:
    first, second = Bench(problem(), limit=90), Bench(problem(), limit=90)
    assert first.search(learned()) == second.search(learned()) is not None
    assert first.tried == second.tried and first.rounds <= 90 + MOST_ROUNDS


def test_knobs_that_are_text_or_missing_are_learned_from_too(learned) -> None:
    names = ["fma", "dot", "mma"]
    points = [
        Point({"unit": name, "m": 2**m} | ({"split": m} if name == "mma" else {})) for name in names for m in range(20)
    ]
    bench = Bench(Problem(points))
    bench.exact = lambda number: 1 + abs(number - 47) / 10
    assert bench.search(learned(trials=40)) == 47


def test_numbers_in_the_text_of_a_knob_are_learned_from(learned) -> None:
    losses = []
    for seed in range(6):
        tiles = [(rows, vectors) for rows in range(1, 13) for vectors in range(1, 9)]
        random.Random(seed).shuffle(tiles)
        bench = Bench(Problem([Point({"tile": f"{rows}x{vectors} vectors"}) for rows, vectors in tiles]))
        bench.exact = lambda number, tiles=tiles: cost_of_tile(*tiles[number])
        losses.append(bench.loss(bench.search(learned(trials=32, seed=seed))))
    assert sum(losses) / len(losses) <= 1.03


def cost_of_tile(rows: int, vectors: int) -> float:
    """Registers spill beyond 32, and small tiles read more than they compute."""
    return 1 / rows + 1 / vectors + max(0, rows * vectors - 24) / 8


def test_without_lightgbm_the_error_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(
        OptionError, match=r"needs lightgbm, which is not installed\nhint: pip install 'hidet-tune\[learned\]'"
    ):
        strategy_named("learned", load_registry())


@pytest.mark.parametrize("name", ["halving", "exhaustive", "random", "evolution"])
def test_strategies_are_found_by_name(name) -> None:
    assert Bench(problem()).search(strategy_named(name, load_registry())) is not None


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(OptionError, match="tuning strategy 'evoluton' is unknown\nhint: did you mean 'evolution'"):
        strategy_named("evoluton", load_registry())


def test_what_a_plugin_names_as_a_strategy_has_to_be_one() -> None:
    class Wrong:
        HIDET_API = PLUGIN_API

        def hidet_tuning_strategies(self):
            yield StrategySpec(name="wrong", load="builtins:dict")

    with use(Wrong) as registry, pytest.raises(PluginError, match=r"'wrong' is \{\}, which has no method `search`"):
        strategy_named("wrong", registry)
