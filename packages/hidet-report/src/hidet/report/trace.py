"""Profiles in the trace format of Chrome, which Perfetto and TensorBoard read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hidet.report.profile import Profile


def chrome_trace(profile: Profile) -> dict[str, Any]:
    """One call as events: kernels on a line, memory in use below it. Times are microseconds."""
    names = {"ph": "M", "pid": 0, "name": "process_name", "args": {"name": f"hidet: {profile.model}"}}
    events: list[dict[str, Any]] = [names]
    for number, begin, end in profile.timeline:
        row = profile.rows[number]
        facts = {
            "kernel": row.kernel,
            "node": row.node,
            "where": row.place,
            "called at": row.call,
            "operators": ", ".join(row.operators),
            "schedule": f"{row.rule} {row.params}".strip(),
            "GB/s": round(row.bandwidth / 1e9, 3),
            "GFLOP/s": round(row.rate / 1e9, 3),
        }
        events.append(
            {
                "ph": "X",
                "pid": 0,
                "tid": 0,
                "cat": row.kind,
                "name": row.operator.partition("(")[0],
                "ts": begin * 1e6,
                "dur": (end - begin) * 1e6,
                "args": {name: value for name, value in facts.items() if value},
            }
        )
    if profile.memory is not None:
        # Steps of the plan are tasks in the order in which they run, where no loop repeats them.
        starts = [begin for _, begin, _ in profile.timeline]
        for step, nbytes in enumerate(profile.memory.over_time[: len(starts)]):
            events.append(
                {"ph": "C", "pid": 0, "name": "temporaries", "ts": starts[step] * 1e6, "args": {"bytes": nbytes}}
            )
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"device": profile.device}}
