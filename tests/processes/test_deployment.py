"""Deployment files: what they mean, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.settings import (
    Checkpointing,
    Continuous,
    Policy,
    Protection,
    Reconcile,
    StandbySettings,
)
from holdfast.deployment import Deployment, DeploymentError, load_deployment

GOOD = """
name = "monitoring"
network = "network.py"

[timing]
delay = "2 seconds"
alpha = 0.8
record_interval = "500 ms"

[sources.load]
from = "rate:100"
listen = "127.0.0.1:4711"

[fragments.main]
replicas = 2
while_failed = "delay"
reconcile = "undo"

[fragments.tail]
replicas = ["127.0.0.1:4712"]
colocate = "small"

[clients.screen]
output = "busy"

[clients.recorder]
output = "busy"
sink = "jsonl:busy.jsonl"
"""

HYBRID = """
protection = "hybrid"
standby = { send = "individual", persist = false, promote_after = "2 seconds" }
"""


ELSEWHERE = """
network = "network.py"
files = ["network.py"]

[servers.east]
listen = "10.0.0.2:4700"

[sources.load]
listen = "10.0.0.1"

[fragments.main]
replicas = ["10.0.0.1:4712", "east", "east:4713"]

[clients.recorder]
output = "busy"
sink = "jsonl:busy.jsonl"
listen = "east"
"""


def written(directory: Path, text: str) -> Deployment:
    (directory / "network.py").write_text("")
    (directory / "deployment.toml").write_text(text)
    return load_deployment(directory / "deployment.toml")


def test_alpha_adapts_unless_it_is_given(tmp_path: Path) -> None:
    assert not written(tmp_path, GOOD).timing.alpha_adapts
    assert written(tmp_path, GOOD.replace("alpha = 0.8\n", "")).timing.alpha_adapts


def test_a_deployment_is_read(tmp_path: Path) -> None:
    found = written(tmp_path, GOOD)
    assert found.timing.delay_us == 2_000_000
    assert found.timing.alpha == 0.8
    assert found.timing.record_interval_us == 500_000
    assert found.sources["load"].endpoint.port == 4711
    main = found.fragments["main"]
    assert (main.while_failed, main.reconcile) == (Policy.DELAY, Reconcile.UNDO)
    assert found.processes == {
        "entry-load": ("entry-load",),
        "main-1": ("main-1",),
        "main-2": ("main-2",),
        "small": ("tail-1",),
        "recorder": ("recorder",),
    }
    assert set(found.endpoints) == {"entry-load", "main-1", "main-2", "tail-1", "recorder"}
    assert found.data == tmp_path / "data"


def test_replicas_share_processes_as_they_are_told(tmp_path: Path) -> None:
    apart = GOOD.replace("replicas = 2", 'replicas = 2\ncolocate = ["one", "small"]')
    processes = written(tmp_path, apart).processes
    assert (processes["one"], processes["small"]) == (("main-1",), ("main-2", "tail-1"))
    together = GOOD.replace("replicas = 2", 'replicas = 2\ncolocate = "one"')
    assert written(tmp_path, together).processes["one"] == ("main-1", "main-2")


def test_a_fragment_chooses_its_protection(tmp_path: Path) -> None:
    found = written(tmp_path, GOOD)
    assert found.fragments["main"].protection is Protection.ACTIVE
    assert found.fragments["tail"].protection is Protection.NONE
    race = written(tmp_path, GOOD.replace("replicas = 2", 'replicas = 2\nprotection = "race"'))
    assert race.fragments["main"].protection is Protection.RACE
    assert race.fragments["main"].standing
    assert not race.fragments["tail"].standing
    hybrid = GOOD.replace('replicas = ["127.0.0.1:4712"]\ncolocate = "small"', HYBRID)
    tail = written(tmp_path, hybrid).fragments["tail"]
    assert tail.processes == ("tail-1", "tail-2")
    assert tail.standby == StandbySettings(
        ("tail-1", "tail-2"),
        Protection.HYBRID,
        Checkpointing.INDIVIDUAL,
        persist=False,
        promote_after_us=2_000_000,
    )
    passive = written(tmp_path, hybrid.replace("hybrid", "passive")).fragments["tail"].standby
    assert passive is not None
    assert passive.misses_until_awake == 3


def test_continuous_checkpoints_have_a_time_or_bounds(tmp_path: Path) -> None:
    def chosen(knobs: str) -> Continuous | None:
        text = f'colocate = "small"\n{knobs}'
        return (
            written(tmp_path, GOOD.replace('colocate = "small"', text)).fragments["tail"].continuous
        )

    assert chosen("") is None
    plain = chosen('checkpoint = "continuous"')
    assert plain == Continuous(recover_within_us=2_000_000)
    knobs = 'checkpoint = "continuous"\nextent = 100\nreplay = 5\ninterval = "1 ms"\nperiod = "1 s"'
    assert chosen(knobs) == Continuous(100, 5, None, 1_000, 1_000_000)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("record_interval", "checkpoint", "timing: 'checkpoint' is called 'record_interval' now"),
        ('"undo"', '"checkpoint"', "main.reconcile: 'checkpoint' is called 'restore' now"),
        (
            'replicas = ["127.0.0.1:4712"]\ncolocate = "small"',
            'protection = "hybrid"\nstandby = { checkpoint = "individual" }',
            "standby: 'checkpoint' is called 'send' now",
        ),
        ("replicas = 2", "replicas = 2\nextent = 7", 'it needs checkpoint = "continuous"'),
        ("replicas = 2", 'replicas = 2\ncheckpoint = "later"', "it is continuous, or left out"),
        ("replicas = 2", 'replicas = 2\ncheckpoint = "continuous"', "undo keeps none"),
        (
            'replicas = ["127.0.0.1:4712"]\ncolocate = "small"',
            'checkpoint = "continuous"\nprotection = "hybrid"\nstandby = { persist = false }',
            "it is kept in a log on disk",
        ),
        (
            'replicas = ["127.0.0.1:4712"]\ncolocate = "small"',
            'checkpoint = "continuous"\nprotection = "passive"\nstandby = { persist = false }',
            "it is kept in a log on disk",
        ),
        (
            'colocate = "small"',
            'checkpoint = "continuous"\nreplay = "all"',
            "fragments.tail.replay: a number above 0",
        ),
        (
            'colocate = "small"',
            'checkpoint = "continuous"\nextent = 9\nrecover_within = "1 s"',
            "give either recover_within or bounds",
        ),
        (
            'colocate = "small"',
            'checkpoint = "continuous"\ninterval = "1 s"',
            "the interval is above zero and at most the period",
        ),
        ('name = "monitoring"', "name = ", "deployment.toml"),
        ('network = "network.py"', 'network = "other.py"', "network: there is no file"),
        ('network = "network.py"', "", "'network' is missing"),
        ("alpha = 0.8", "alpha = 1.5", "timing: alpha is between 0 and 1"),
        ("alpha = 0.8", "alhpa = 0.8", "timing: 'alhpa' means nothing here"),
        ('delay = "2 seconds"', 'delay = "soon"', "timing.delay"),
        ("[timing]", "[spark]\nmaster = 2\n[timing]", "spark.master: it is 'local.*; got '2'"),
        ("replicas = 2", "replicas = 0", "fragments.main.replicas: at least 1"),
        ("replicas = 2", 'replicas = "two"', "a number or a list of host:port"),
        (
            "replicas = 2",
            'replicas = 2\ncolocate = ["one"]',
            "main.colocate: a process, or a list of 2",
        ),
        ('while_failed = "delay"', 'while_failed = "wait"', "suspend, delay, process"),
        ("replicas = 2", 'replicas = 2\nprotection = "some"', "none, active, passive, hybrid"),
        ("replicas = 2", 'replicas = 2\nprotection = "none"', "none has one replica"),
        ("replicas = 2", 'replicas = 3\nprotection = "hybrid"', "hybrid has 3 here"),
        ("replicas = 2", 'protection = "hybrid"', "main.reconcile: copies that stand by keep"),
        ("replicas = 2", "replicas = 2\nstandby = {}", "main.standby: only passive and hybrid"),
        (
            "replicas = 2",
            'replicas = 2\nprotection = "race"\nstandby = {}',
            "main.standby: only passive and hybrid fragments have copies that wait",
        ),
        ("replicas = 2", 'replicas = 1\nprotection = "race"', "race has 1 here"),
        (
            "replicas = 2",
            'replicas = 2\nprotection = "race"\ndelivery = "at-least-once"',
            "main.delivery: .*none or passive, because",
        ),
        ('"127.0.0.1:4711"', '"127.0.0.1:port"', "sources.load.listen: write it as host"),
        ("[clients.screen]", "[clients.main-1]", "two processes have this name"),
        ('output = "busy"\n\n', "\n", "clients.screen: 'output' is missing"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(DeploymentError, match=message):
        written(tmp_path, GOOD.replace(old, new))


def test_servers_run_what_is_placed_on_them(tmp_path: Path) -> None:
    found = written(tmp_path, ELSEWHERE)
    assert found.hosted_by("east") == ("main-2", "main-3", "recorder")
    assert found.hosted_by(None) == ("entry-load", "main-1")
    main = found.endpoints["main-3"]
    assert (main.host, main.port, main.server) == ("10.0.0.2", 4713, "east")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (':4700"', '"', "servers.east.listen: write it as host:port"),
        ('listen = "10.0.0.1"', "", "entry-load: it listens on 127.0.0.1, where the servers"),
        ('"east:4713"]', '"east:4713"]\ncolocate = "w"', "share a process, so one server"),
        ("[clients.recorder]", "[clients.holdfast]", "the commands go by this name"),
        ('["network.py"]', '["../x"]', "files: there is no file '../x' beside"),
    ],
)
def test_what_is_wrong_with_servers_is_named(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    with pytest.raises(DeploymentError, match=message):
        written(tmp_path, ELSEWHERE.replace(old, new))


def test_the_example_of_two_machines_is_right() -> None:
    example = Path(__file__).parents[2] / "examples" / "deployment" / "two-machines.toml"
    found = load_deployment(example)
    assert found.hosted_by("east") == ("main-2", "summary-2", "busy-2")


@pytest.mark.parametrize(
    ("security", "own"),
    [
        ("", True),
        ('certificate = "c"\nkey = "k"', True),
        ('certificate = "c"\nkey = "k"\nauthority = "a"\nmutual = false', True),
        ('certificate = "c"\nkey = "k"\nauthority = "a"', False),
        ('token_file = "t"', False),
        ('tokens = "t"', False),
        ('directory = "security/here"', False),
    ],
)
def test_no_deployment_is_open_to_everybody(tmp_path: Path, security: str, own: bool) -> None:
    found = written(tmp_path, GOOD + "[security]\n" + security).security
    assert found.own_tokens is own
    assert (found.tokens == tmp_path / "data" / "tokens") is own


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[security]\ntoken_file = 't'\ntokens = 't'", "security: token_file is one token for"),
        ("[security]\ndirectory = 'd'\nkey = 'k'", "security: with a directory, nothing else"),
        ("[security]\nmutual = 1", "security.mutual: it is true or false; got 1"),
        ("[servers.here]\nlisten = '127.0.0.1:1'", "servers.here: this machine goes by this name"),
    ],
)
def test_what_is_wrong_with_security_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DeploymentError, match=message):
        written(tmp_path, f"{GOOD}\n{text}\n")


@pytest.mark.parametrize(
    ("knob", "message"),
    [
        ("persist = 'no'", "standby.persist: it is true or false; got 'no'"),
        ("misses = 'two'", "standby.misses: a number from 1 on, got 'two'"),
        ("misses = 0", "standby.misses: a number from 1 on, got 0"),
        ("slowdown = 'x'", "standby.slowdown: a number that is not negative, got 'x'"),
    ],
)
def test_knobs_of_a_standby_are_of_their_type(tmp_path: Path, knob: str, message: str) -> None:
    main = '[fragments.main]\nprotection = "hybrid"\n'
    small = f'network = "network.py"\n[sources.load]\n{main}'
    assert written(tmp_path, small).fragments["main"].standby is not None
    with pytest.raises(DeploymentError, match=message):
        written(tmp_path, f"{small}[fragments.main.standby]\n{knob}\n")


def test_keep_is_true_or_false(tmp_path: Path) -> None:
    small = 'network = "network.py"\n[fragments.main]\n[sources.load]\nkeep = '
    assert written(tmp_path, f"{small}true").sources["load"].keep
    with pytest.raises(DeploymentError, match=r"sources.load.keep: it is true or false; got 1"):
        written(tmp_path, f"{small}1")


def test_chaos_is_true_or_false(tmp_path: Path) -> None:
    assert not written(tmp_path, GOOD).chaos
    assert written(tmp_path, f"chaos = true\n{GOOD}").chaos
    with pytest.raises(DeploymentError, match="chaos: it is true or false; got 'yes'"):
        written(tmp_path, f"chaos = 'yes'\n{GOOD}")
