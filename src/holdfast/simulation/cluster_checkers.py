"""What is promised of a cluster, watched while it is simulated.

one       at most one coordinator is obeyed in a term
kept      terms and versions on disk never go back; one version names one value
lost      what was acknowledged, or obeyed, is in everything that is settled later
steady    a coordinator that is well, with a majority that is, stays one
quorum    who has been without a majority for a while says so, and acknowledges nothing
managed   a majority that can talk has a coordinator soon, and at the end everybody has its value
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.cluster_messages import ClusterRecord, Lead, Version
from holdfast.simulation.checkers import Violation


def entries(value: str) -> frozenset[str]:
    """What a simulated value consists of: what was submitted."""
    return frozenset(value.split())


class ClusterChecker:
    """Remembers what was said, and raises when a promise is broken."""

    def __init__(self) -> None:
        self.acknowledged: set[str] = set()
        self._obeyed_in: dict[int, str] = {}
        self._values: dict[Version, str] = {}
        self._settled = Version()

    def offers(self, version: Version, value: str) -> None:
        """A coordinator has made a new version."""
        self._names(version, value)

    def speaks(self, sender: str, word: Lead) -> None:
        """A coordinator speaks: what it offers under a version is one thing, for ever."""
        if word.value is not None:
            self._names(word.version, word.value)

    def obeys_word(self, follower: str, sender: str, term: int, known: int) -> None:
        """A server has heard a coordinator of a term and obeys it, knowing of a term."""
        if term < known:
            raise Violation("one", f"{follower} obeys {sender} of term {term}, knowing of {known}")
        other = self._obeyed_in.setdefault(term, sender)
        if other != sender:
            raise Violation("one", f"{follower} obeys {sender} in term {term}, others {other}")

    def deposes(self, coordinator: str) -> None:
        """Called when a coordinator is one no longer that has been well, with its majority."""
        raise Violation("steady", f"{coordinator} was well and coordinated, and does no longer")

    def keeps(self, server: str, before: ClusterRecord, record: ClusterRecord) -> None:
        if record.term < before.term or record.version < before.version:
            raise Violation("kept", f"{server} goes back from {before} to {record}")
        if record.term == before.term and before.voted_for not in ("", record.voted_for):
            raise Violation("kept", f"{server} votes twice in term {record.term}")
        self._names(record.version, record.value)

    def obeys(self, server: str, before: Version, version: Version, value: str) -> None:
        """A server takes a version for the desired state."""
        if version < before:
            raise Violation("kept", f"{server} obeys {version} after {before}")
        self._names(version, value)
        if version >= self._settled:
            self._settled = version
            self._holds_all(value, f"{server} obeys {version}")
            # What somebody has obeyed counts as if it had been acknowledged.
            self.acknowledged |= entries(value)

    def acknowledges(self, server: str, entry: str, version: Version) -> None:
        """Somebody is told that what it submitted is taken."""
        if entry not in entries(self._values.get(version, "")):
            raise Violation("lost", f"{server} acknowledges {entry}, which {version} has not")
        self.acknowledged.add(entry)
        self._settled = max(self._settled, version)

    def has_quorum(self, server: str, others: Iterable[str]) -> None:
        """Called for one that coordinates though no majority has been in reach for long."""
        raise Violation("quorum", f"{server} coordinates and reaches only {sorted(others)}")

    def is_managed(self, managed: bool, what: str) -> None:
        if not managed:
            raise Violation("managed", f"{what}")

    def ends(self, values: dict[str, str]) -> None:
        """All has been well for long: everybody has the same, and all of it."""
        if len(set(values.values())) != 1:
            raise Violation("managed", f"servers differ in the end: {values}")
        for server, value in values.items():
            self._holds_all(value, f"{server} at the end")

    def _holds_all(self, value: str, who: str) -> None:
        lost = self.acknowledged - entries(value)
        if lost:
            raise Violation("lost", f"{sorted(lost)} was acknowledged; {who} has not")

    def _names(self, version: Version, value: str) -> None:
        known = self._values.setdefault(version, value)
        if known != value:
            raise Violation("kept", f"version {version} is {known!r} and {value!r}")
