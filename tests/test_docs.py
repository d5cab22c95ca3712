"""What the documents name is there: files, links, commands and the rooms of the house."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src" / "holdfast"
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "design").glob("*.md")]
)
# A path with a directory or an ending, in code: `core/entry.py`, `kept/`, `tests/core`.
NAMED = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.(?:py|md|toml|json)|(?:[\w-]+/)+)`")
# Files that belong to a user, or that a process makes.
MADE = {"network.py", "my_network.py", "name.json"}
HOMES = (ROOT, SOURCES, ROOT / "docs", ROOT / "docs" / "design", SOURCES / "spark")


def named_in(page: Path) -> set[str]:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    return {name for name in NAMED.findall(text) if Path(name).name not in MADE}


@pytest.mark.parametrize("name", ["one-tuple.md", "../ARCHITECTURE.md", "../../CONTRIBUTING.md"])
def test_every_file_that_a_page_about_the_code_names_is_there(name: str) -> None:
    page = ROOT / "docs" / "design" / name
    missing = [
        each for each in sorted(named_in(page)) if not any((home / each).exists() for home in HOMES)
    ]
    assert missing == [], f"{page.name} names files that are not there"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_between_pages_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_room_is_in_both_lists_of_rooms() -> None:
    rooms = {path.parent.name for path in SOURCES.glob("*/__init__.py")}
    for page in (ROOT / "CONTRIBUTING.md", ROOT / "docs" / "ARCHITECTURE.md"):
        listed = set(re.findall(r"(\w+)/", page.read_text().split("src/holdfast/\n")[1]))
        assert rooms - listed == set(), f"{page.name} leaves rooms out"


def test_every_word_that_names_a_thing_of_its_own_is_in_the_glossary() -> None:
    """Words that a reader of the code meets and cannot guess."""
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    table = text.split("## The words")[1].split("## The rooms")[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| ")]
    explained = {word.strip().lower() for row in rows for word in row.split(",")}
    words = """
        network, fragment, replica, stream, frame, stime, tmax, seq, key, shard, slot, heir,
        generation, delivery, lossy, early, trail, claim, bucket, boundary, state, run, lane, epoch,
        incarnation, membership, server, cluster, coordinator, term, register, settled, zone,
        collected, revived, network cost, join, dead letter, copy, record, primary, suspended,
        awake, ring, lend, lender, feed, standing feed, hopeless, seat, submission, parcel, inlet,
        offer, driver, order, fact, workshop, told, resident, keeper, partneranew, book, journal,
        entry point, client
    """
    assert [
        word for word in words.replace("\n", " ").split(",") if word.strip() not in explained
    ] == []
