"""What happened in the demonstration, moment by moment."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from holdfast.connect.console_sink import show_value
from holdfast.runtime.reports import AdvanceReport

_KEPT_ALERTS = 200


@dataclass(frozen=True)
class Moment:
    """One advance: seconds since the start, and what it took and gave."""

    at: float
    tuples_in: int
    alerts: int
    latency_ms: float | None
    bucket_ms: float
    open_windows: int


class History:
    """All advances of the demonstration and its latest alerts."""

    def __init__(self, seconds: float, servers: int) -> None:
        self.seconds = seconds
        self.servers = servers
        self.advances: list[Moment] = []
        self.alerts: deque[tuple[str, str]] = deque(maxlen=_KEPT_ALERTS)
        self.region_load: dict[str, float] = {}
        self.counts = {"busy_server": 0, "slow_network": 0, "region_load": 0}
        self._started = time.monotonic()

    def start(self) -> None:
        self._started = time.monotonic()

    @property
    def now(self) -> float:
        return time.monotonic() - self._started

    @property
    def elapsed(self) -> float:
        return self.advances[-1].at if self.advances else 0.0

    @property
    def tuples_in(self) -> int:
        return sum(moment.tuples_in for moment in self.advances)

    def add(self, report: AdvanceReport) -> list[tuple[str, str]]:
        """Note an advance; the alerts it brought, as output and text."""
        alerts: list[tuple[str, str]] = []
        for output, table in report.outputs.items():
            self.counts[output] += table.num_rows
            for row in table.to_pylist():
                if output == "region_load":
                    self.region_load[row["region"]] = row["cpu"]
                else:
                    alerts.append((output, _sentence(output, row)))
        latency = report.latency_seconds
        self.advances.append(
            Moment(
                self.now,
                report.tuples_in,
                len(alerts),
                None if latency is None else latency * 1000,
                report.bucket_seconds * 1000,
                report.open_windows,
            )
        )
        self.alerts.extend(alerts)
        return alerts

    def rate_by_second(self) -> list[float]:
        """Tuples taken a second, for each whole second the mean of it and the two before.

        Whether a second sees one, two or three buckets end says nothing about the rate.
        """
        taken = [0.0] * int(self.elapsed)
        for moment in self.advances:
            if moment.at < len(taken):
                taken[int(moment.at)] += moment.tuples_in
        spans = [taken[max(0, second - 2) : second + 1] for second in range(len(taken))]
        return [sum(span) / len(span) for span in spans]

    def latency_by_second(self) -> list[float]:
        """The worst latency of each whole second, the last one's where a second has none."""
        worst = [0.0] * int(self.elapsed)
        for moment in self.advances:
            if moment.at < len(worst):
                worst[int(moment.at)] = max(worst[int(moment.at)], moment.latency_ms or 0.0)
        for second in range(1, len(worst)):
            worst[second] = worst[second] or worst[second - 1]
        return worst

    def latency_ms(self, share: float) -> float:
        known = [each.latency_ms for each in self.advances if each.latency_ms is not None]
        return _quantile(known, share)

    def bucket_ms(self, share: float) -> float:
        return _quantile([moment.bucket_ms for moment in self.advances], share)


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(share * len(values)), len(values) - 1)] if values else 0.0


def _sentence(output: str, row: dict[str, object]) -> str:
    window = row["window"]
    assert isinstance(window, dict)
    when = show_value(window["start"])
    latency, links = row["latency_ms"], row["slow_links"]
    assert isinstance(latency, float)
    if output == "busy_server":
        cpu = row["cpu"]
        assert isinstance(cpu, float)
        return (
            f"{when}  {row['server']} is busy ({cpu:.0%} CPU): {links} slow links to it, "
            f"{latency:.0f} ms"
        )
    return (
        f"{when}  network {row['origin_region']} → {row['region']} is slow: {links} links, "
        f"{latency:.0f} ms"
    )
