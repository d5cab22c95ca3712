"""Benchmark standby beside the paper: the figures that are wanted, the picture and the page."""

from __future__ import annotations

import statistics
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

Found = dict[str, Any]
COLOURS = {"none": "#b0b0b0", "passive": "#c98a3b", "active": "#7a6fb0", "hybrid": "#1f6f8b"}


def summary(found: Found) -> Found:
    """The keys that are wanted, from everything that was measured."""
    told: Found = {}
    if "modes" in found:
        modes = found["modes"]
        for mode in ("passive", "active", "hybrid"):
            for unit in ("tuples", "bytes"):
                ratios = [one[mode][f"{unit}_over_none"] for one in modes["traffic"].values()]
                suffix = "" if unit == "tuples" else "_bytes"
                told[f"traffic_{mode}_over_none{suffix}"] = max(ratios)
            if mode != "active":
                told[f"checkpoints_{mode}_over_none"] = max(
                    round(one[mode]["checkpoint_tuples_s"] / one["none"]["tuples_s"], 4)
                    for one in modes["traffic"].values()
                )
        for mode, points in modes["delay"].items():
            told[f"delay_{mode}_mean_ms"] = {key: one["mean_ms"] for key, one in points.items()}
        switched = list(modes["switching"].values())
        for mode in ("passive", "hybrid"):
            # Without parts it was not the copy on the stopped machine that ran.
            some = [one[mode] for one in switched if "detect_ms" in one[mode]]
            # A passive copy is deployed once; from then on it has its engine.
            for part in ("recovery", "detect", "resume", "resend", "rollback"):
                key = f"{part}_ms"
                values = [one[key] for one in some if key in one]
                if values:
                    first = values[:1] if mode == "passive" else values
                    told[f"{mode}_{key}"] = round(statistics.median(first), 1)
        if {"hybrid_recovery_ms", "passive_recovery_ms"} <= set(told):
            ratio = told["hybrid_recovery_ms"] / told["passive_recovery_ms"]
            told["hybrid_over_passive_recovery"] = round(ratio, 3)
    told["wrong"] = sum(
        sum(value.values())
        for one in found.values()
        for key, value in one.items()
        if key.endswith("wrong")
    )
    return told


def draw(figure: Figure, told: Found) -> None:
    """One panel for each figure of the paper."""
    axes = figure.subplots(2, 4).flatten()
    if "modes" in told:
        _delay(axes[0], told["modes"]["delay"])
        _shared(axes[1], told["modes"])
        _traffic(axes[2], told["modes"]["traffic"])
        _switching(axes[5], told["modes"]["switching"])
    if "variants" in told:
        _recovery(axes[3], told["variants"], "heartbeat", "Fig. 7: heartbeat interval, ms")
        _recovery(axes[4], told["variants"], "checkpoint_interval", "Fig. 8: checkpoints, ms")
    if "detectors" in told:
        _operators(axes[6], told["detectors"]["traffic"])
        _checkpointings(axes[7], told["detectors"]["traffic"])


def _delay(axes: Axes, delay: Found) -> None:
    for mode, points in delay.items():
        fractions = [100 * float(each) for each in points]
        means = [one["mean_ms"] for one in points.values()]
        axes.plot(fractions, means, "o-", label=mode, color=COLOURS[mode])
    axes.set(title="Fig. 4: delay", xlabel="% of the time failed", ylabel="mean ms", yscale="log")
    axes.legend(fontsize=7)


def _shared(axes: Axes, modes: Found) -> None:
    for name in ("shared", "dedicated"):
        if name in modes:
            fractions = [100 * float(each) for each in modes[name]]
            means = [one["mean_ms"] for one in modes[name].values()]
            axes.plot(fractions, means, "o-", label=name)
    axes.set(title="Fig. 5: one secondary for three", xlabel="% of the time failed")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7)


def _traffic(axes: Axes, traffic: Found) -> None:
    for mode, colour in COLOURS.items():
        rates = [int(rate) for rate in traffic]
        sent = [one[mode]["tuples_s"] for one in traffic.values()]
        axes.plot(rates, sent, "o-", label=mode, color=colour)
    axes.set(title="Fig. 6: traffic", xlabel="elements/s", ylabel="tuples sent/s")
    axes.legend(fontsize=7)


def _recovery(axes: Axes, variants: Found, knob: str, title: str) -> None:
    """Stacked: detect, resume, resend; passive on the left of each pair."""
    chosen = by_knob(variants, knob)
    for place, (interval, pair) in enumerate(sorted(chosen.items())):
        for side, mode in enumerate(("passive", "hybrid")):
            bottom = 0.0
            for part, shade in (("detect", 1.0), ("resume", 0.7), ("resend", 0.4)):
                value = variants["recovery"][pair[mode]].get(f"{part}_ms", 0.0)
                colour = COLOURS[mode]
                axes.bar(place + 0.4 * side, value, 0.38, bottom, color=colour, alpha=shade)
                bottom += value
        axes.text(place + 0.2, 0, f"{interval}", ha="center", va="top", fontsize=7)
    axes.set(title=title, ylabel="recovery ms: detect, resume, resend")
    axes.set_xticks([])


def by_knob(variants: Found, knob: str) -> dict[int, dict[str, str]]:
    """Interval in ms -> mode -> the branch that has it, everything else being equal."""
    base = {"heartbeat": 100, "checkpoint_interval": 500}
    found: dict[int, dict[str, str]] = {}
    for branch, about in variants["about"].items():
        knobs = {key: int(about[key].split()[0]) for key in base if key in about}
        full = base | knobs
        if all(full[key] == value for key, value in base.items() if key != knob):
            found.setdefault(full[knob], {})[about["protection"]] = branch
    return {interval: pair for interval, pair in found.items() if len(pair) == 2}


def _switching(axes: Axes, switching: Found) -> None:
    labels = list(switching)
    ours = [one["hybrid"] for one in switching.values()]
    switch = [one.get("resume_ms", 0.0) + one.get("resend_ms", 0.0) for one in ours]
    back = [one.get("rollback_ms", 0.0) for one in ours]
    axes.bar(range(len(labels)), switch, label="switch")
    axes.bar(range(len(labels)), back, bottom=switch, label="roll back")
    axes.set_xticks(range(len(labels)), [label.replace(" ", "/s\n", 1) for label in labels])
    axes.tick_params(labelsize=7)
    axes.set(title="Fig. 9: switch and roll back", ylabel="ms")
    axes.legend(fontsize=7)


def _operators(axes: Axes, traffic: Found) -> None:
    points = operators(traffic)
    axes.plot(list(points), list(points.values()), "o-", color=COLOURS["hybrid"])
    axes.set(title="Fig. 11: operators", xlabel="operators", ylabel="checkpoint tuples/s")
    axes.set_ylim(bottom=0)


def operators(traffic: Found) -> dict[int, float]:
    """Operators in the fragment -> what its checkpoints send in a second."""
    found = {2: float(traffic["sweeping"]["checkpoint_tuples_s"])}
    for branch, one in traffic.items():
        if branch.startswith("operators-"):
            found[int(branch.removeprefix("operators-"))] = one["checkpoint_tuples_s"]
    return dict(sorted(found.items()))


def checkpointings(traffic: Found) -> dict[str, Found]:
    """How checkpoints are taken -> what they send and take."""
    return {name: traffic[name] for name in ("sweeping", "individual", "synchronous")}


def _checkpointings(axes: Axes, traffic: Found) -> None:
    found = checkpointings(traffic)
    axes.bar(list(found), [one["checkpoint_tuples_s"] for one in found.values()])
    axes.set(title="checkpoints", ylabel="tuples/s")
