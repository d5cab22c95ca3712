"""A driver of ``core``, with a look at what goes in and at what comes of it."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.effects import Effect
from holdfast.core.events import Event
from holdfast.loop import Driver


class Watched:
    """Hands events on; ``before`` sees each of them, ``after`` is called when it was handled."""

    def __init__(
        self, driver: Driver, before: Callable[[Event], None], after: Callable[[], None]
    ) -> None:
        self._driver = driver
        self._before = before
        self._after = after

    def handle(self, event: Event, now: int) -> list[Effect]:
        self._before(event)
        effects = self._driver.handle(event, now)
        self._after()
        return effects
