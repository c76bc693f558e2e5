"""From a store to decisions: for the tasks of a rule, the small tree over sizes that loses the least time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hidet.tuning.distil_choice import Decision, If, Tree, answer_of, named_sizes
from hidet.tuning.store import Entry
from hidet.tuning.strategy_history import History

DEPTH = 4
"""Questions at most between the root and an answer."""

LEAST_SAVED = 0.01
"""A question has to save as much of the time of one task."""

UNKNOWN = 1.1
"""The time of a point over the default's where nobody has measured it."""

_FOLDS = 10


@dataclass(frozen=True, slots=True)
class Example:
    """A task of the store. sizes: by name. default: the `repr` of the default parameters. answer: that of the chosen
    ones, None for the default. ratios: the time over the default's by answer."""

    summary: str
    sizes: Mapping[str, int]
    default: str
    answer: str | None
    ratios: Mapping[str | None, float]

    def is_reproduced(self, answer: str | None) -> bool:
        """Whether an answer gives the chosen parameters."""
        return (None if answer == self.default else answer) == self.answer

    def loss(self, answer: str | None) -> float:
        """By what part of its time the task is slower with an answer than with its own."""
        return max(self.ratios.get(answer, UNKNOWN) / self.ratios[self.answer] - 1, 0.0)


@dataclass(frozen=True, slots=True)
class Distilled:
    """A decision, held against the tasks that it was made of.

    tasks: how many; examples: summaries of a few. reproduced: how many get what was chosen for them. gain: how many
    times as fast as by default tasks are with what was chosen for them; kept: with what the decision answers. loss: by
    what part of their time tasks are slower than with their own choice; left_out: the same for tasks that the tree was
    not made of, by cross-validation. Means are geometric.
    """

    decision: Decision
    tasks: int
    examples: tuple[str, ...]
    reproduced: int
    gain: float
    kept: float
    loss: float
    left_out: float


def distil(store: History) -> list[Distilled]:
    """A decision for each rule, kind of tensors and machine of a store, by their names. Those whose tree has the
    default as its only answer are left out."""
    groups: dict[tuple[str, str, str, str], list[Example]] = {}
    measured = store.ratios()
    for entry in store.entries():
        tensors, sizes = named_sizes(entry.meaning.sizes)
        meaning = entry.meaning
        example = _example(entry, sizes, measured.get(meaning, {}))
        groups.setdefault((meaning.rule, meaning.version, meaning.arch, tensors), []).append(example)
    found = [_distilled(*key, examples) for key, examples in sorted(groups.items())]
    return [each for each in found if each.decision.tree is not None]


def _example(entry: Entry, sizes: Mapping[str, int], measured: Mapping[str, float]) -> Example:
    ratios: dict[str | None, float] = {None: 1.0}
    ratios.update(measured)
    ratios[entry.default_params] = 1.0
    answer = None if entry.params == entry.default_params else entry.params
    if answer is not None:
        # The last comparison had the most rounds.
        ratios[answer] = entry.seconds / entry.default_seconds
    return Example(entry.summary, sizes, entry.default_params, answer, ratios)


def _distilled(rule: str, version: str, arch: str, tensors: str, examples: Sequence[Example]) -> Distilled:
    tree = grow(examples)
    answers = [answer_of(tree, example.sizes) for example in examples]
    ranges = {
        name: (min(example.sizes[name] for example in examples), max(example.sizes[name] for example in examples))
        for name in examples[0].sizes
    }
    pairs = list(zip(examples, answers, strict=True))
    return Distilled(
        Decision(rule=rule, version=version, arch=arch, tensors=tensors, sizes=ranges, tree=tree),
        len(examples),
        tuple(dict.fromkeys(example.summary for example in examples))[:3],
        sum(example.is_reproduced(answer) for example, answer in pairs),
        1 / _mean(example.ratios[example.answer] for example in examples),
        1 / _mean(example.ratios.get(answer, UNKNOWN) for example, answer in pairs),
        _mean(1 + example.loss(answer) for example, answer in pairs) - 1,
        _left_out(examples),
    )


def _left_out(examples: Sequence[Example]) -> float:
    """The mean loss of examples by trees that were grown without them; by the default alone where there is one."""
    folds = min(len(examples), _FOLDS)
    losses = []
    for fold in range(folds):
        tree = grow([each for place, each in enumerate(examples) if place % folds != fold])
        asked = [each for place, each in enumerate(examples) if place % folds == fold]
        losses += [1 + each.loss(answer_of(tree, each.sizes)) for each in asked]
    return _mean(losses) - 1


def grow(examples: Sequence[Example], depth: int = DEPTH) -> Tree:
    """The tree of at most so many questions in a row that loses little time; each question is the one that saves the
    most (CART). Questions that save next to nothing are not asked, so that trees stay small."""
    answer, loss = _best(examples)
    if depth == 0 or loss < LEAST_SAVED:
        return answer
    left, (name, limit) = min(
        ((_loss_of(examples, split), split) for split in _splits(examples)), default=(loss, ("", 0))
    )
    if loss - left < LEAST_SAVED:
        return answer
    small, large = _parts(examples, name, limit)
    then, otherwise = grow(small, depth - 1), grow(large, depth - 1)
    return If(name, limit, then, otherwise) if then != otherwise else then


def _parts(examples: Sequence[Example], name: str, limit: int) -> tuple[list[Example], list[Example]]:
    small = [example for example in examples if example.sizes[name] <= limit]
    return small, [example for example in examples if example.sizes[name] > limit]


def _splits(examples: Sequence[Example]) -> Iterable[tuple[str, int]]:
    """Questions that tell the examples apart: limits lie half way, by the ratio, between sizes that were measured."""
    for name in examples[0].sizes if examples else ():
        values = sorted({example.sizes[name] for example in examples})
        for small, large in pairwise(values):
            yield name, max(small, min(large - 1, round(math.sqrt(small * large))))


def _loss_of(examples: Sequence[Example], split: tuple[str, int]) -> float:
    return sum(_best(part)[1] for part in _parts(examples, *split))


def _best(examples: Sequence[Example]) -> tuple[str | None, float]:
    """The answer that loses the least over all examples, and what it loses; the default where it is as good."""
    answers = dict.fromkeys([None, *(example.answer for example in examples)])
    losses = {answer: sum(example.loss(answer) for example in examples) for answer in answers}
    best = min(losses, key=losses.__getitem__)
    return best, losses[best]


def _mean(ratios: Iterable[float]) -> float:
    logarithms = [math.log(ratio) for ratio in ratios]
    return math.exp(math.fsum(logarithms) / len(logarithms)) if logarithms else 1.0
