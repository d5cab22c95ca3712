"""What the page shows: one deployment; or of what a cluster runs, to each viewer what they chose.

Each is watched once, from the moment somebody first looks at it, however many look.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.deployment import Deployment, load_deployment
from holdfast.flight.credentials import SecuritySpec
from holdfast.web.clusters import SubmissionEye
from holdfast.web.controls import Controls
from holdfast.web.editing import Editor
from holdfast.web.hub import Hub
from holdfast.web.resubmitting import Resubmitter
from holdfast.web.watching import Watch


@dataclass(frozen=True)
class Shown:
    """One deployment that is watched, made to fail and changed.

    eye  what looks at the cluster, if that runs it.
    """

    watch: Watch
    editor: Editor
    controls: Controls
    eye: SubmissionEye | None

    @classmethod
    def of(
        cls,
        deployment: Deployment,
        eye: SubmissionEye | None = None,
        not_editable: str | None = None,
    ) -> Shown:
        """``not_editable``: why, if it is not."""
        watch = Watch(deployment, Hub(), eye)
        editor = Editor(lambda: watch.deployment, watch.history, not_editable)
        if eye is not None:
            editor = Resubmitter(lambda: watch.deployment, watch.history, eye)
        controls = Controls(
            lambda: watch.deployment, watch.history, lambda: watch.is_submitted, eye
        )
        return cls(watch, editor, controls, eye)

    @property
    def name(self) -> str:
        """It changes when another submission takes its place."""
        return self.watch.deployment.name if self.eye is None else self.eye.name

    @property
    def is_forgotten(self) -> bool:
        """Whether it was withdrawn and nobody looks at it."""
        told = None if self.eye is None else self.eye.latest
        return (
            told is not None and self.name not in told["submissions"] and not self.watch.hub.count
        )


class Showing:
    """Everything that is shown. Any thread may ask."""

    def __init__(self, first: Shown, another: Callable[[str], Shown] | None = None) -> None:
        """``another``: shows something else by its name, if there may be."""
        self.first = first
        self._another = another
        self._others: list[Shown] = []
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Shown]:
        with self._lock:
            return iter([self.first, *self._others])

    def of(self, name: str) -> Shown:
        """That of a name, the first if none is given; HoldfastError if there is no such thing.

        The first look at one takes as long as its cluster takes to answer.
        """
        with self._lock:
            for each in [one for one in self._others if one.is_forgotten]:
                self._others.remove(each)
                each.watch.close()
            found = [each for each in (self.first, *self._others) if each.name == name]
            if found or not name or self._another is None:
                return found[0] if found else self.first
            shown = self._another(name)
            shown.watch.start()
            self._others.append(shown)
            return shown

    def close(self) -> None:
        for each in self:
            each.watch.close()


def submissions(
    address: str, spec: SecuritySpec, name: str | None, directory: Path
) -> tuple[Shown, Callable[[str], Shown]]:
    """What a cluster runs of a name, or the first of all; and how the others are shown."""
    numbers = itertools.count()

    def show(at: str, wanted: str | None) -> Shown:
        eye = SubmissionEye(at, spec, wanted, directory / str(next(numbers)))
        return Shown.of(load_deployment(eye.path), eye)

    first = show(address, name)
    assert first.eye is not None, "it was made with one"
    eye = first.eye
    return first, lambda wanted: show(eye.address, wanted)
