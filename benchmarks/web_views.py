"""Which picture of the page stands on which page of results: one of a run of the same kind.

``make bench BENCH=web-pictures`` takes them; whoever writes a page of results anew keeps its own.
"""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
IMAGES, RESULTS = DOCS / "images", DOCS / "results"
_HEAD = "## On the page"
_CUT_OFF = (
    "web-timeline.png",
    "Results and states while a source was cut off and healed, and a replica killed",
)
_KILLED = (
    "web-protections.png",
    "The same query with each protection: results and states while the process of the first copies "
    "is killed, and that of the second ones paused",
)
_CLUSTER = (
    "web-race.png",
    "A cluster of four servers: replicas that race, and which share of the results each brought "
    "first",
)
VIEWS: dict[str, tuple[str, str]] = {
    "dpc-chain": _CUT_OFF,
    "dpc-delay": _CUT_OFF,
    "dpc-policies": _CUT_OFF,
    "dpc-reconcile": _CUT_OFF,
    "dpc-serialization": _CUT_OFF,
    "time": _CUT_OFF,
    "cec": _KILLED,
    "failover": _KILLED,
    "faults": _KILLED,
    "replace": _KILLED,
    "standby": _KILLED,
    "placement": _CLUSTER,
    "race": _CLUSTER,
}


def with_view(name: str, text: str) -> str:
    """A page of results with its picture of the page at the end, if there is one."""
    picture, caption = VIEWS.get(name, ("", ""))
    text = text.partition(f"\n{_HEAD}\n")[0].rstrip() + "\n"
    if not picture or not (IMAGES / picture).exists():
        return text
    said = "A run of this kind, not the measured one, as [the page](../web.md) shows it."
    return f"{text}\n{_HEAD}\n\n{said}\n\n![{caption}](../images/{picture})\n"


def show_on_pages() -> None:
    """Put the pictures on the pages that are there."""
    for name in VIEWS:
        path = RESULTS / f"{name}.md"
        if path.exists():
            path.write_text(with_view(name, path.read_text()))
