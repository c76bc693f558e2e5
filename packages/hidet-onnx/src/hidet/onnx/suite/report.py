"""What the suite says: counts and reasons for people, and the table of operators in docs/onnx-coverage.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hidet.onnx.suite.cases import Outcome

RESULTS = ("pass", "wrong", "rounding", "random", "fail")
CLASSES = ("scheduled", "fallback", "routine", "host", "eager")


def summary(outcomes: Sequence[Outcome]) -> str:
    """Counts, and the tests that do not pass by reason."""
    counts = {
        result: sum(1 for o in outcomes if o.result == result)
        for result in ("pass", "wrong", "rounding", "random", "fail")
    }
    by_reason: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.result != "pass":
            by_reason.setdefault(f"{outcome.result}: {outcome.reason}", []).append(outcome.name)
    lines = [f"{len(outcomes)} tests: {', '.join(f'{count} {result}' for result, count in counts.items())}"]
    for reason, names in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        lines.append(f"{len(names):5} {reason}")
        lines.append(f"      {', '.join(sorted(names)[:4])}")
    return "\n".join(lines)


@dataclass(slots=True)
class _Row:
    """What the tests of one operator say. nodes: by class, of models that have no other operator."""

    tests: int = 0
    passed: int = 0
    nodes: dict[str, int] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        self.tests += 1
        self.passed += outcome.result == "pass"
        if len(outcome.operators) == 1:
            for name, count in outcome.classes.items():
                self.nodes[name] = self.nodes.get(name, 0) + count


def coverage(outcomes: Sequence[Outcome], version: str, device: str) -> str:
    """docs/onnx-coverage.md: operators, how many of their tests pass, and how their nodes are compiled.

    version: that of the onnx package whose tests were run; device: what they ran on.
    """
    rows: dict[str, _Row] = {}
    for outcome in outcomes:
        for operator in outcome.operators:
            rows.setdefault(operator, _Row()).add(outcome)
    complete = sum(1 for row in rows.values() if row.passed == row.tests)
    passed = sum(1 for outcome in outcomes if outcome.result == "pass")
    wrong = sum(1 for outcome in outcomes if outcome.result == "wrong")
    lines = [
        "# ONNX operators",
        "",
        f"Written by `nox -s conformance`, which runs every backend test of the onnx package on the {device}.",
        "",
        f"onnx {version}: {passed} of {len(outcomes)} tests pass, {wrong} give other values. Of {len(rows)} operators",
        f"that occur in them, {complete} pass every test.",
        "",
        "Nodes are those of the compiled graphs of models with no other operator: scheduled by a rule, on the fallback",
        "nest, an algorithm (routine), or on the host. Nodes that fold into constants are not there any more.",
        "",
        "| operator | tests | pass | scheduled | fallback | routine | host |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_line(operator, row) for operator, row in sorted(rows.items())]
    failing = [outcome for outcome in outcomes if outcome.result != "pass"]
    if failing:
        lines += ["", "## Tests that do not pass", ""]
        lines += [
            "random: the model draws random numbers, and the recorded ones are another generator's. rounding: within"
        ]
        lines += [
            "4 units of the largest element, where the recorded value is itself a rounding error.",
            "",
            "| test | result | reason |",
            "|---|---|---|",
        ]
        lines += [f"| {o.name} | {o.result} | {_cell(o.reason)} |" for o in sorted(failing, key=lambda o: o.name)]
    return "\n".join(lines) + "\n"


def _line(operator: str, row: _Row) -> str:
    counts = " | ".join(_count(row.nodes, name) for name in CLASSES[:4])
    return f"| {operator} | {row.tests} | {row.passed} | {counts} |"


def _count(nodes: Mapping[str, int], name: str) -> str:
    return str(nodes[name]) if nodes.get(name) else ""


def _cell(text: str) -> str:
    return text.replace("|", "/")[:160]
