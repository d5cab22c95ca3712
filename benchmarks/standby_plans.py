"""The chains of benchmark standby: which fragments run where, and how they are protected."""

from __future__ import annotations

from benchmarks.standby_chain import Plan

About = dict[str, dict[str, str]]

MODES = ("none", "passive", "active", "hybrid")
# A copy is never replaced for good: every failure here passes.
MOST_BRANCHES = 6
PLACES = ("first", "second")
PROMOTE_AFTER = "60 seconds"
# Where the second machine never fails, it can run what goes before the last fragment.
WITH_SECOND = dict.fromkeys(("subjob-1", "subjob-2", "subjob-3"), 'colocate = "second"')


def standby(protection: str, places: tuple[str, str] = PLACES, **knobs: str) -> str:
    """The table of a fragment whose second copy stands by."""
    settings = {
        "heartbeat": "100 ms",
        "checkpoint_interval": "500 ms",
        "promote_after": PROMOTE_AFTER,
        **knobs,
    }
    lines = [f'protection = "{protection}"', f"colocate = {list(places)}", "[{name}.standby]"]
    lines += ["persist = false", *(f'{key} = "{value}"' for key, value in settings.items())]
    return "\n".join(lines)


def modes() -> Plan:
    """The last fragment in each of the four modes.

    The two before it are hybrid, too: three primaries share one secondary.
    """
    fragments = {
        "subjob-2": standby("hybrid", ("rest", "second")),
        "subjob-3": standby("hybrid", ("rest", "second")),
        "none": 'colocate = "first"',
        "active": 'replicas = 2\ncolocate = ["first", "second"]',
        "passive": standby("passive"),
        "hybrid": standby("hybrid"),
    }
    return Plan(dict.fromkeys(MODES, 2), fragments)


def variants(quick: bool) -> list[tuple[Plan, About]]:
    """Hybrid and passive with other intervals.

    As many in one deployment as two cores can run; none of its machines has to stand still, so two
    of them do.
    """
    heartbeats = (100, 500) if quick else (100, 200, 300, 400, 500)
    checkpoints = (900,) if quick else (100, 300, 700, 900)
    fragments: dict[str, str] = {}
    about: About = {}

    def add(name: str, protection: str, **knobs: str) -> None:
        fragments[name] = standby(protection, PLACES, **knobs)
        about[name] = {"protection": protection, **knobs}

    for protection in ("passive", "hybrid"):
        for each in heartbeats:
            add(f"{protection}-heartbeat-{each}", protection, heartbeat=f"{each} ms")
        for each in checkpoints:
            add(f"{protection}-checkpoint-{each}", protection, checkpoint_interval=f"{each} ms")
    names = list(about)
    return [
        (
            Plan(
                dict.fromkeys(some, 2),
                {name: fragments[name] for name in some} | WITH_SECOND,
                bucket_ms=600,
            ),
            {name: about[name] for name in some},
        )
        for some in (names[at : at + MOST_BRANCHES] for at in range(0, len(names), MOST_BRANCHES))
    ]


def detectors(quick: bool) -> Plan:
    """Two ways to notice a failure; two more to take checkpoints; more operators.

    Missed heartbeats never wake the copy that the standard set is to wake. The machine that is
    overloaded runs these two only.
    """
    elsewhere = ("rest", "second")
    fragments = {
        "heartbeat": standby("hybrid", heartbeat="110 ms"),
        "benchmark": standby("hybrid", heartbeat="110 ms", detector="benchmark", misses="1000000"),
        "sweeping": standby("hybrid", elsewhere),
        "individual": standby("hybrid", elsewhere, send="individual"),
        "synchronous": standby("hybrid", elsewhere, send="synchronous"),
    }
    branches = dict.fromkeys(fragments, 2)
    for count in (6,) if quick else (4, 6, 8):
        fragments[f"operators-{count}"] = standby("hybrid", elsewhere)
        branches[f"operators-{count}"] = count
    return Plan(branches, fragments | WITH_SECOND)


def dedicated() -> Plan:
    """Three hybrid fragments, each with a secondary of its own."""
    fragments: dict[str, str] = {}
    for number, name in enumerate(("subjob-2", "subjob-3", "hybrid"), 1):
        fragments[name] = standby("hybrid", ("rest", f"second-{number}"))
    return Plan({"hybrid": 2}, fragments)
