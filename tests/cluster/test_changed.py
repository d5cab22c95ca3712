"""What of what nodes have kept a changed network goes on with; plans, records and logs by hand."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.cluster.change import Change
from holdfast.cluster.changed import going_on
from holdfast.cluster.starting import check_logs
from holdfast.core.frame import Kind
from holdfast.core.records import UNKNOWN_ID, RecoveryRecord, StreamEnd
from holdfast.core.settings import Keeping
from holdfast.deployment import Deployment, load_deployment
from holdfast.errors import StateError
from holdfast.frames import SEQ, STIME, TIME, TMAX, data_frame
from holdfast.identity import identity_of
from holdfast.kept.packed_codec import decode_record
from holdfast.kept.state import RecordOnly
from holdfast.kept.state_directory import StateDirectory
from holdfast.log import StreamLog
from holdfast.plans.fragment_plans import DescribedOperator, FragmentPlan, FragmentStream
from holdfast.plans.membership_file import change_membership
from holdfast.plans.plan import Plan, SourcePlan, read_plan, write_plan
from tests.blocks_for_tests import boundary_frame

BUCKET_US = 200_000
K = pa.field("k", pa.int64())
WORD = pa.field("word", pa.string())
WINDOW = "window=TimeWindow(size=2000000, advance=2000000)"
OPERATORS = (
    DescribedOperator("filter_1", ("load",), "", ("Filter (k > 0)",)),
    DescribedOperator("aggregate_1", ("filter_1",), "Aggregate", (WINDOW,)),
    DescribedOperator("filter_2", ("aggregate_1",), "", ("Filter (k > 5)",)),
)
WORDS = (
    "load: source with stime None, key None",
    *(line for one in OPERATORS for line in one.text()),
    "output out: filter_2",
)


def planned(
    *gained: pa.Field,
    description: tuple[str, ...] = WORDS,
    operators: tuple[DescribedOperator, ...] = OPERATORS,
) -> Plan:
    source = pa.schema([STIME, TMAX, SEQ, K, *gained])
    output = FragmentStream("out", source, frozenset(["load"]))
    main = FragmentPlan(
        "main", {"load": source}, (output,), False, description, operators=operators
    )
    return Plan(BUCKET_US, {"load": SourcePlan(source, None, ())}, {"main": main}, ("out",))


def with_more(plan: Plan, stream: str) -> Plan:
    """The plan with a fragment of one output more."""
    main = plan.fragments["main"]
    more = replace(main, name="more", outputs=(replace(main.outputs[0], stream=stream),))
    return replace(plan, fragments={"main": main, "more": more})


ENDED = StreamEnd("out", 5, 1_400_000)


class Kept:
    """A deployment of which main-1 is at 1.0 s, its results at 1.4 s, and the source at 1.5 s."""

    def __init__(
        self,
        directory: Path,
        keeping: Keeping = Keeping.NOTHING,
        more: str = "",
        ended: StreamEnd | None = ENDED,
    ) -> None:
        """``ended``: what main-1 has noted; None if it was killed."""
        (directory / "network.py").write_text("")
        text = 'network = "network.py"\n[sources.load]\n[fragments.main]\nreplicas = 2\n' + more
        (directory / "deployment.toml").write_text(text)
        self.deployment: Deployment = load_deployment(directory / "deployment.toml")
        write_plan(self.deployment, planned())
        nodes = self.deployment.data / "processes"
        self.record = RecoveryRecord(1_000_000, 600_000, (("load", 3),), (("out", 2),), 1_000_000)
        kept = RecordOnly(nodes / "main-1" / "state", WORDS, keeping)
        kept.save(self.record, None)
        if ended is not None:
            kept.end([ended])
        kept.close()
        self.log(nodes / "main-1" / "streams" / "out", 5, 1_400_000, seq=True)
        self.log(nodes / "entry-load" / "streams" / "load", 9, 1_500_000, seq=False)

    @staticmethod
    def log(directory: Path, tuples: int, boundary: int, *, seq: bool) -> None:
        numbers = pa.array(range(tuples), pa.int64())
        columns = [numbers.cast(TIME), numbers.cast(TIME), *([numbers] if seq else []), numbers]
        schema = pa.schema([STIME, TMAX, *([SEQ] if seq else []), K])
        with StreamLog.open(directory, schema) as log:
            rows = pa.record_batch(columns, schema=schema)
            log.append([data_frame(Kind.STABLE, 0, rows), boundary_frame(tuples, boundary)])

    def go_on(self, plan: Plan, bare: Plan, change: Change = Change.REFUSE) -> tuple[Plan, str]:
        said: list[str] = []
        found = going_on(self.deployment, plan, lambda gained: bare, change, said.append)
        return found, "\n".join(said)

    def leave(self, *gone: str) -> None:
        change_membership(self.deployment, lambda known: known.without(*gone))
        self.deployment = load_deployment(self.deployment.path)

    def manifest(self, node: str) -> tuple[RecoveryRecord, list[str]]:
        state = StateDirectory(self.deployment.data / "processes" / node / "state")
        try:
            assert state.manifest is not None
            return decode_record(state.manifest["record"]), state.manifest["network"]
        finally:
            state.close()


def test_state_is_gone_on_with_however_often_a_source_has_gained_something(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    once, _ = kept.go_on(planned(WORD, description=("once",)), planned())
    assert once.fragments["main"].earlier == (identity_of(WORDS),)
    write_plan(kept.deployment, once)
    check_logs(kept.deployment, once)
    again, more = planned(WORD, K.with_name("n"), description=("twice",)), once
    twice, _ = kept.go_on(again, replace(more, fragments=planned(description=("once",)).fragments))
    assert twice.fragments["main"].earlier == (identity_of(WORDS), identity_of(("once",)))
    write_plan(kept.deployment, twice)
    assert read_plan(kept.deployment).fragments["main"].earlier == twice.fragments["main"].earlier
    state = kept.deployment.data / "processes" / "main-1" / "state"
    other = shutil.copytree(state, tmp_path / "other")
    with pytest.raises(StateError, match="state of another query"):
        RecordOnly(other, ["twice"], Keeping.NOTHING)
    found = RecordOnly(state, ["twice"], Keeping.NOTHING, twice.fragments["main"].earlier)
    assert found.record == kept.record
    found.save(kept.record, None)
    found.close()
    assert kept.manifest("main-1")[1] == ["twice"]


def test_a_column_that_must_have_a_value_and_one_that_is_used_are_refused(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    needed = planned(WORD.with_nullable(False))
    with pytest.raises(StateError, match="word: string not null"):
        kept.go_on(needed, needed)
    used = planned(WORD, description=(*WORDS, "filter_3: Filter word = 'a'"))
    with pytest.raises(StateError, match=r"now  filter_3: Filter word(.|\n)*--keep-state"):
        kept.go_on(used, planned(description=used.fragments["main"].description))


def changed(old: str, new: str) -> Plan:
    def lines(of: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(line.replace(old, new) for line in of)

    operators = tuple(replace(one, lines=lines(one.lines)) for one in OPERATORS)
    return planned(description=lines(WORDS), operators=operators)


@pytest.mark.parametrize(
    ("old", "new", "effect"),
    [
        ("k > 5", "k > 6", "results from 1970-01-01 00:00:01.400"),
        ("k > 0", "k > 1", "aggregate_1 takes in what it gives from 1970-01-01 00:00:00.600"),
    ],
    ids=["below", "above"],
)
def test_the_state_stays_where_only_stateless_parts_have_changed(
    tmp_path: Path, old: str, new: str, effect: str
) -> None:
    kept, plan = Kept(tmp_path), changed(old, new)
    with pytest.raises(StateError, match="state of another query"):
        kept.go_on(plan, plan)
    found, said = kept.go_on(plan, plan, Change.KEEP_STATE)
    assert effect in said
    wanted = replace(kept.record, outputs=(("out", UNKNOWN_ID),))
    for node in ("main-1", "main-2"):
        assert kept.manifest(node) == (wanted, list(plan.fragments["main"].description))
    assert sorted(each.name for each in (kept.deployment.data / "aside").iterdir()) == [
        "main-1-state-1"
    ]
    assert found.fragments["main"].earlier == ()


@pytest.mark.parametrize(
    ("ended", "why"),
    [
        (None, "main-1 did not end in order"),
        (StreamEnd("out", 6, 1_400_000), "a reader of 'out' has it up to tuple 6"),
        (StreamEnd("out", 5, 1_600_000), "and 1970-01-01 00:00:01.600"),
    ],
    ids=["killed", "more tuples", "further in time"],
)
@pytest.mark.parametrize("change", [Change.KEEP_STATE, Change.FROM_NOW])
def test_what_readers_may_have_beyond_the_logs_is_refused(
    tmp_path: Path, change: Change, ended: StreamEnd | None, why: str
) -> None:
    kept, plan = Kept(tmp_path, ended=ended), changed("k > 5", "k > 6")
    with pytest.raises(StateError, match=f"{change.value}.*{why}.*start the deployment"):
        kept.go_on(plan, plan, change)
    assert not (kept.deployment.data / "aside").exists()


@pytest.mark.parametrize(
    ("keeping", "old", "new", "why"),
    [
        (Keeping.NOTHING, "size=2000000", "size=1000000", "now  aggregate_1: window="),
        (Keeping.WINDOWS, "k > 0", "k > 1", "a change above aggregate_1 would take effect at no"),
    ],
    ids=["another window", "windows of many moments"],
)
def test_what_the_state_is_not_of_is_refused(
    tmp_path: Path, keeping: Keeping, old: str, new: str, why: str
) -> None:
    kept, plan = Kept(tmp_path, keeping), changed(old, new)
    with pytest.raises(StateError, match=why):
        kept.go_on(plan, plan, Change.KEEP_STATE)
    assert not (kept.deployment.data / "aside").exists()


def test_windows_in_the_log_stay_if_the_change_is_below_them(tmp_path: Path) -> None:
    kept, plan = Kept(tmp_path, Keeping.WINDOWS), changed("k > 5", "k > 6")
    kept.go_on(plan, plan, Change.KEEP_STATE)
    assert kept.manifest("main-2")[0].extent == kept.record.extent


@pytest.mark.parametrize(
    ("first", "then"),
    [(Change.FROM_NOW, Change.KEEP_STATE), (Change.KEEP_STATE, Change.FROM_NOW)],
)
def test_a_change_that_was_interrupted_is_gone_on_with_as_it_began(
    tmp_path: Path, first: Change, then: Change
) -> None:
    kept, plan = Kept(tmp_path), changed("k > 5", "k > 6")
    kept.go_on(plan, plan, first)  # and its plan is not written
    begun = kept.manifest("main-1")
    with pytest.raises(StateError, match=rf"{then.value}: main-1 has .* holdfast up {first.value}"):
        kept.go_on(plan, plan, then)
    other = changed("k > 5", "k > 7")
    with pytest.raises(StateError, match="with the network as it was changed then"):
        kept.go_on(other, other, first)
    assert kept.manifest("main-1") == begun
    kept.go_on(plan, plan, first)
    assert kept.manifest("main-1")[1] == begun[1]


@pytest.mark.parametrize("change", [Change.KEEP_STATE, Change.FROM_NOW])
def test_replicas_that_are_gone_do_not_go_on(tmp_path: Path, change: Change) -> None:
    kept = Kept(tmp_path)
    kept.leave("main-2")
    plan = changed("k > 5", "k > 6")
    kept.go_on(plan, plan, change)
    assert kept.manifest("main-1")[1] == list(plan.fragments["main"].description)
    assert not (kept.deployment.data / "processes" / "main-2").exists()


def test_a_new_fragment_begins_where_replicas_end_that_take_part(tmp_path: Path) -> None:
    kept = Kept(tmp_path, more="[fragments.more]\nreplicas = 2\n")
    plan = with_more(planned(), "more_out")
    main, more = plan.fragments["main"], plan.fragments["more"]
    served = (replace(more.outputs[0], reached_by=frozenset(["out"])),)
    more = replace(more, inputs={"out": main.outputs[0].schema}, outputs=served)
    plan = replace(plan, fragments={**plan.fragments, "more": more})
    kept.leave("main-2", "more-1")
    kept.go_on(plan, plan, Change.FROM_NOW)
    assert kept.manifest("more-2")[0].inputs == (("out", 5),)
    assert not (kept.deployment.data / "processes" / "more-1").exists()


def test_a_new_fragment_begins_where_its_its_inputs_end_and_serves_what_nobody_did(
    tmp_path: Path,
) -> None:
    kept = Kept(tmp_path, more="[fragments.more]\n")
    plan = with_more(planned(), "more_out")
    found, said = kept.go_on(plan, plan, Change.FROM_NOW)
    assert said == "fragment 'more' begins with nothing at 1970-01-01 00:00:01.600+00:00"
    record, _ = kept.manifest("more-1")
    # At the next bucket after what the source has, with the tuple that comes next.
    assert record == RecoveryRecord(
        1_600_000, 1_600_000, (("load", 9),), (("more_out", 0),), 1_600_000
    )
    assert kept.manifest("main-1")[0] == kept.record
    assert set(found.fragments) == {"main", "more"}
    stolen = with_more(planned(), "out")
    left = replace(stolen.fragments["main"], outputs=())
    stolen = replace(stolen, fragments={**stolen.fragments, "main": left})
    with pytest.raises(StateError, match="is new and serves 'out', which fragment 'main' has"):
        kept.go_on(stolen, stolen, Change.FROM_NOW)
