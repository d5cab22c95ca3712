"""What is kept of a state says how it was delivered; nobody goes on from one that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.records import RecoveryRecord
from holdfast.core.settings import Delivery, Keeping
from holdfast.errors import StateError
from holdfast.kept.state import RecordOnly

RECORD = RecoveryRecord(50, 50, (("in", 3),), (("out", 7),))


def kept(path: Path, delivery: Delivery) -> RecordOnly:
    return RecordOnly(path / "state", ["query"], Keeping.NOTHING, delivery=delivery)


def test_state_without_a_log_of_results_is_not_taken_for_one_with_it(tmp_path: Path) -> None:
    written = kept(tmp_path, Delivery.AT_LEAST_ONCE)
    written.save(RECORD, None)
    written.close()
    with pytest.raises(StateError, match="delivery = at-least-once, which keeps no log of results"):
        kept(tmp_path, Delivery.EXACTLY_ONCE)
    again = kept(tmp_path, Delivery.AT_LEAST_ONCE)
    assert again.record == RECORD
    again.close()


def test_state_with_a_log_of_results_is_enough_for_at_least_once(tmp_path: Path) -> None:
    written = kept(tmp_path, Delivery.EXACTLY_ONCE)
    written.save(RECORD, None)
    written.close()
    again = kept(tmp_path, Delivery.AT_LEAST_ONCE)
    assert again.record == RECORD
    again.close()
