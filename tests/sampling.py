"""Which cases of a test run by default: one in so many; where several parameters vary, with every value of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence


def chosen_cases(cases: Sequence[Mapping[str, int]], every: int) -> list[int]:
    """The numbers of one in `every` cases, in order.

    cases: which value of each parameter a case has, by the parameter's name. Each next case is the first of those with
    the most values that no case before it has, and among these of those whose values are the rarest. One case in
    `every` of a list in which one parameter varies fastest would have the same value of that one each time.
    """
    count = -(-len(cases) // every)
    if len({name for case in cases for name in case}) <= 1:
        return list(range(0, len(cases), every))
    taken: Counter[tuple[str, int]] = Counter()
    left = list(range(len(cases)))

    def known(number: int) -> tuple[int, int]:
        counts = [taken[each] for each in cases[number].items()]
        return sum(map(bool, counts)), sum(counts)

    for _ in range(count):
        best = min(left, key=known)
        left.remove(best)
        taken.update(cases[best].items())
    return sorted(set(range(len(cases))) - set(left))
