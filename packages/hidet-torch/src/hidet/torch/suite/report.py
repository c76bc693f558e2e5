"""What the suite says: counts for people, and the table of operators in docs/torch-coverage.md."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from hidet.torch.suite.cases import RIGHT, Outcome

TITLES = {"op": "Operators", "hop": "Operators that take functions", "module": "Modules", "optim": "Optimisers"}
SHOWN = 6
"""How many names of operators left to torch a row has."""


def summary(outcomes: Sequence[Outcome], detailed: bool = True) -> str:
    """Counts; then what is wrong or fails, and which operators are left to torch, the most frequent first."""
    tried = tried_of(outcomes)
    counts = Counter(outcome.result for outcome in outcomes)
    lines = [
        f"{len(tried)} cases of {len({o.operator for o in tried})} entries: "
        + ", ".join(f"{count} {result}" for result, count in counts.most_common())
        + f"; {share(tried)} without a node left to torch"
    ]
    for title in ("wrong", "error") if detailed else ():
        lines += ["", f"{title}:"]
        lines += _by((o.operator, f"{o.name} {o.reason}") for o in outcomes if o.result == title)
    if detailed:
        lines += ["", "left to torch, by operator that is left:"]
        lines += _by((name, o.operator) for o in outcomes for name in o.left)
        lines += ["", "cases with a node left, by entry:"]
        lines += _by((o.operator, " ".join(o.left)) for o in outcomes if o.left)
    return "\n".join(lines)


def _by(pairs: Iterable[tuple[str, str]]) -> list[str]:
    found: dict[str, Counter[str]] = {}
    for key, detail in pairs:
        found.setdefault(key, Counter())[detail] += 1
    ordered = sorted(found.items(), key=lambda item: -item[1].total())
    return [f"{c.total():6} {key}: {'; '.join(name for name, _ in c.most_common(3))}" for key, c in ordered]


def tried_of(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """The cases that eager mode runs, and torch's own tracing does not break."""
    return [outcome for outcome in outcomes if outcome.result not in ("refused", "torch")]


def share(tried: Sequence[Outcome]) -> str:
    """Of cases without a node left to torch, in percent."""
    return f"{100 * sum(o.is_whole for o in tried) / max(len(tried), 1):.1f} %"


def coverage(outcomes: Sequence[Outcome], version: str, selected: str) -> str:
    """docs/torch-coverage.md. version: of torch; selected: in words, which of the cases were run."""
    tried = tried_of(outcomes)
    results = Counter(outcome.result for outcome in outcomes)
    right = sum(results[name] for name in RIGHT)
    lines = [
        "# torch operators",
        "",
        "Written by `nox -s torch_conformance`, which compiles the samples of torch's own tables of tests (`op_db`,",
        '`hop_db`, `module_db`, `optim_db`) with `torch.compile(backend="hidet")` for the CPU and compares with eager',
        "mode; where the two differ, with float64 over three draws, by the limits of `hidet.testing.numerics`.",
        "",
        f"torch {version}, {selected}.",
        "",
        "| table | entries | cases | right | wrong | errors | cases without a node left to torch |",
        "|---|---|---|---|---|---|---|",
    ]
    databases = {table: [o for o in outcomes if o.name.startswith(f"{table}:")] for table in TITLES}
    for table, own in databases.items():
        if own:
            lines.append(_line(f"{TITLES[table].lower()} | {len({o.operator for o in own})}", own))
    lines += [
        _line(f"all | {len({o.operator for o in outcomes})}", outcomes),
        "",
        f"{results['refused']} samples that eager mode refuses, or that have no gradient, are not counted. Nor are the",
        f'{results["torch"]} that torch\'s own tracing fails on or changes, with `backend="aot_eager"`, too. Of the '
        f"{right} right ones,",
        f"{results['statistics']} draw random numbers, whose distribution is compared, and of {results['shape']} that",
        "return memory as they get it, dtype, shape and strides are. Cases with a result of which eager mode",
        f"itself has no digit right: {results['noise']}.",
        "",
        f"Dynamo traces sizes and numbers that depend on data here. {len(tried)} cases count.",
    ]
    for table, own in databases.items():
        if own:
            lines += [
                "",
                f"## {TITLES[table]}",
                "",
                "| entry | cases | right | wrong | errors | whole | left to torch |",
            ]
            lines += ["|---|---|---|---|---|---|---|"]
            for operator in sorted({o.operator for o in own}):
                cases = [o for o in own if o.operator == operator]
                left = Counter(name for o in cases for name in o.left)
                names = ", ".join(name for name, _ in left.most_common(SHOWN)) + (", ..." if len(left) > SHOWN else "")
                lines.append(f"{_line(operator.partition(':')[2], cases, False)} {names.replace('|', '/')} |")
    failing = [outcome for outcome in outcomes if outcome.result in ("wrong", "error")]
    if failing:
        lines += ["", "## Cases that are wrong or fail", "", "| case | result | reason |", "|---|---|---|"]
        lines += [f"| {o.name} | {o.result} | {_cell(o.reason)} |" for o in failing]
    return "\n".join(lines) + "\n"


def _line(head: str, outcomes: Sequence[Outcome], percent: bool = True) -> str:
    tried = tried_of(outcomes)
    right = sum(outcome.result in RIGHT for outcome in tried)
    wrong, errors = (sum(o.result == result for o in tried) or "" for result in ("wrong", "error"))
    whole = share(tried) if percent else sum(outcome.is_whole for outcome in tried)
    return f"| {head} | {len(tried)} | {right} | {wrong} | {errors} | {whole} |"


def _cell(text: str) -> str:
    """A reason, without the folders of this machine."""
    return re.sub(r"/\S+/(?=[^/\s])", "", text).replace("|", "/")[:160]
