"""Who is where in benchmark race, and what links alone would take.

A site is one process with one Spark driver; at each is one replica of each fragment. Where replicas
race, everybody takes what comes first, and who is where stays as it is. With one feeder it depends
on whom one follows, which is chosen without regard to distances. So those who are followed are put
at every site in turn, for as long each: once in three times both are at the same site, as chance
would have it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping

SITES = ("site-1", "site-2", "site-3")
FRAGMENTS = ("merged", "alerts")
SOURCES = ("load_east", "load_west", "latency_east", "latency_west")
READER, WATCHER = "operator", "watcher"
PLACES = len(SITES) + len(SOURCES) + 1
# At which site those are who are followed, of merged and of alerts, in each turn.
TURNS = ((0, 0), (2, 1), (1, 2))

Matrix = Mapping[tuple[str, str], float]


def site_of(fragment: str, number: int) -> int:
    """At which site the replica of a fragment is: replicas of one number are apart."""
    return (number + FRAGMENTS.index(fragment)) % len(SITES)


def usual_places(places: list[str]) -> dict[str, str]:
    """Where every node is."""
    sites, rest = places[: len(SITES)], places[len(SITES) :]
    found = {
        f"{fragment}-{number + 1}": sites[site_of(fragment, number)]
        for fragment in FRAGMENTS
        for number in range(len(SITES))
    }
    found |= {
        f"entry-{name}": place for name, place in zip(SOURCES, rest[: len(SOURCES)], strict=True)
    }
    return found | dict.fromkeys((READER, WATCHER), rest[-1])


def followed_at(
    places: list[str], followed: Mapping[str, str], at: tuple[int, int]
) -> dict[str, str]:
    """The same, with those who are followed at certain sites, of merged and of alerts.

    followed  of each fragment the replica on the operator's path.
    """
    found = usual_places(places)
    for fragment, site in zip(FRAGMENTS, at, strict=True):
        first = followed[fragment]
        names = [f"{fragment}-{number + 1}" for number in range(len(SITES))]
        ordered = [first, *(name for name in names if name != first)]
        sites = [places[site], *(places[each] for each in range(len(SITES)) if each != site)]
        found |= dict(zip(ordered, sites, strict=True))
    return found


def links_followed_ms(places: list[str], matrix: Matrix, at: tuple[int, int]) -> float:
    """What links take with one feeder: a bucket waits for the furthest source."""
    merged, alerts = (places[each] for each in at)
    where = usual_places(places)
    first = max(matrix[where[f"entry-{name}"], merged] for name in SOURCES)
    return first + matrix[merged, alerts] + matrix[alerts, where[READER]]


def nearest(places: list[str], matrix: Matrix) -> tuple[int, int]:
    """Where those are whom it is best to follow."""
    numbers = range(len(SITES))
    every = [(merged, alerts) for merged in numbers for alerts in numbers]
    return min(every, key=lambda at: links_followed_ms(places, matrix, at))


def links_raced_ms(places: list[str], matrix: Matrix) -> float:
    """What links take at least where everybody takes what comes first.

    Of a pair of readings made at the same time, on the mean over the sources of both.
    """
    where, sites = usual_places(places), places[: len(SITES)]

    def reaches(source: str, alerts: str) -> float:
        origin = where[f"entry-{source}"]
        return min(matrix[origin, merged] + matrix[merged, alerts] for merged in sites)

    def pair(one: str, other: str) -> float:
        return min(
            max(reaches(one, alerts), reaches(other, alerts)) + matrix[alerts, where[READER]]
            for alerts in sites
        )

    loads, latencies = SOURCES[:2], SOURCES[2:]
    return statistics.mean(pair(one, other) for one in loads for other in latencies)


def links_ms(places: list[str], matrix: Matrix) -> dict[str, float]:
    """What links alone take in each mode."""
    turns = [links_followed_ms(places, matrix, at) for at in TURNS]
    found = {
        "race": links_raced_ms(places, matrix),
        "active": statistics.mean(turns),
        "nearest": links_followed_ms(places, matrix, nearest(places, matrix)),
    }
    return {name: round(value, 1) for name, value in found.items()}
