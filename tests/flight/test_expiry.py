"""A certificate that has expired is told before anybody fails to connect."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from holdfast.cluster.server import Server
from holdfast.cluster.supervisor import Supervisor
from holdfast.flight.certificates import Authority, check_dates
from holdfast.flight.credentials import SecuritySpec
from holdfast.flight.roles import Role
from holdfast.flight.secrets import SecurityError
from tests.processes.planned import planned

DEPLOYMENT = """
network = "network.py"
[security]
certificate = "here/certificate.pem"
key = "here/key.pem"
authority = "here/authority.pem"
[sources.load]
[fragments.main]
"""


def issue(directory: Path, days: int) -> Path:
    """A certificate that is valid for so many days from now."""
    Authority.at(directory, "test").issue(
        directory / "here", Role.OPERATE, "here", ["127.0.0.1"], days
    )
    return directory / "here" / "certificate.pem"


def test_a_certificate_is_valid_then_warned_of_then_refused(tmp_path: Path) -> None:
    path = issue(tmp_path, 100)
    now = datetime.datetime.now(datetime.UTC)
    assert check_dates(path, now) is None
    soon = check_dates(path, now + datetime.timedelta(days=95))
    assert f"{path}: it expires on " in str(soon)
    with pytest.raises(SecurityError, match=r"certificate\.pem: it expired on \d{4}-\d\d-\d\d at"):
        check_dates(path, now + datetime.timedelta(days=101))
    with pytest.raises(SecurityError, match=r"it is valid only from .* machine's clock"):
        check_dates(path, now - datetime.timedelta(days=1))
    path.write_text("nothing")
    with pytest.raises(SecurityError, match="it is no certificate"):
        check_dates(path)


def test_neither_a_deployment_nor_a_server_starts_with_one_that_has_expired(
    tmp_path: Path,
) -> None:
    issue(tmp_path, 0)
    deployment = planned(tmp_path, DEPLOYMENT)
    with pytest.raises(SecurityError, match="it expired on"):
        Supervisor(deployment).start()
    here = tmp_path / "here"
    security = SecuritySpec(
        certificate=here / "certificate.pem",
        key=here / "key.pem",
        authority=here / "authority.pem",
    )
    with pytest.raises(SecurityError, match="it expired on"):
        Server("127.0.0.1", 0, tmp_path / "server", security)
