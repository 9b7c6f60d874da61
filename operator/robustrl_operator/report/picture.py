"""The picture of a run: each pod's role over time, faults, recoveries, steps and rewards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from robustrl_api.job import RLJob
from robustrl_operator.report.timeline import Timeline

COLOURS = {"trainer": "#d1495b", "rollout": "#2e86ab", "manager": "#8d99ae", "service": "#66a182", "lost": "#000000"}
INCHES_A_POD = 0.18
FEW_MARKS = 6
"""So many have room for their texts side by side."""


def draw(timeline: Timeline, job: RLJob, path: Path) -> Path | None:
    """Draw to a PNG. None where matplotlib is not installed or there is nothing to draw."""
    try:
        import matplotlib
    except ImportError:
        return None
    if len(timeline.samples) < 2:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    above = max(3.0, INCHES_A_POD * len(_names(timeline)))
    figure, (roles, curve, rate) = pyplot.subplots(
        3, 1, figsize=(12, 5 + above), sharex=True, gridspec_kw={"height_ratios": [above, 2, 1.3]}, layout="constrained"
    )
    _draw_roles(roles, timeline)
    _draw_curve(curve, timeline)
    _draw_rate(rate, timeline)
    for axis in (roles, curve, rate):
        _draw_marks(axis, timeline, labels=axis is roles)
    rate.set_xlabel("seconds")
    figure.suptitle(f"{job.metadata.name}: {timeline.samples[-1].step} steps, {job.spec.recovery.strategy}")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return path


def _names(timeline: Timeline) -> list[str]:
    """Pods in the order they appeared."""
    return list(dict.fromkeys(pod.name for sample in timeline.samples for pod in sample.pods))


def _draw_roles(axis: Any, timeline: Timeline) -> None:
    names = _names(timeline)
    for index, name in enumerate(names):
        for start, end, role in spans(timeline, name):
            axis.broken_barh([(start, end - start)], (index - 0.4, 0.8), color=COLOURS.get(role, "#cccccc"))
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    handles = [_patch(colour, role) for role, colour in COLOURS.items() if role != "service"]
    axis.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False)


def _patch(colour: str, label: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(color=colour, label=label)


def spans(timeline: Timeline, name: str) -> list[tuple[float, float, str]]:
    """(start, end, role) of a pod, in seconds; a gap where it was not there."""
    found: list[tuple[float, float, str]] = []
    previous = 0.0
    for sample in timeline.samples:
        role = next((pod.role for pod in sample.pods if pod.name == name), None)
        if role is not None:
            if found and found[-1][2] == role and found[-1][1] == previous:
                found[-1] = (found[-1][0], sample.seconds, role)
            else:
                found.append((previous, sample.seconds, role))
        previous = sample.seconds
    return found


def _draw_curve(axis: Any, timeline: Timeline) -> None:
    seconds = [s.seconds for s in timeline.samples]
    axis.plot(seconds, [s.step for s in timeline.samples], color="#444444", label="steps")
    axis.set_ylabel("steps committed")
    twin = axis.twinx()
    rewarded = [(s.seconds, s.reward) for s in timeline.samples if s.reward is not None]
    twin.plot([s for s, _ in rewarded], [r for _, r in rewarded], color="#edae49", label="mean reward")
    twin.set_ylabel("mean reward")


def _draw_rate(axis: Any, timeline: Timeline) -> None:
    points = [(s.seconds, s.tokens_total) for s in timeline.samples if s.tokens_total is not None]
    window = 8
    rates = [
        (b[0], max(0.0, (b[1] - a[1]) / (b[0] - a[0])))
        for a, b in zip(points, points[window:], strict=False)
        if b[0] > a[0]
    ]
    axis.fill_between([t for t, _ in rates], [r for _, r in rates], color="#2e86ab", alpha=0.5)
    axis.set_ylabel("tokens/s, all\nrollouts")


def _draw_marks(axis: Any, timeline: Timeline, *, labels: bool) -> None:
    few = len(timeline.marks) <= FEW_MARKS
    style = {"fontsize": 8, "ha": "center"} if few else {"fontsize": 6, "ha": "left", "rotation": 60}
    for mark in timeline.marks:
        axis.axvline(mark.seconds, color="black", linestyle="--", linewidth=1 if few else 0.4)
        if labels:
            text = mark.text if few else mark.text.partition(" ")[0]
            axis.text(mark.seconds, 1.01, text, va="bottom", transform=axis.get_xaxis_transform(), **style)
