"""The identity of a query: what must be equal for state to be gone on with.

Whoever keeps state keeps the description of its query with it (``description``), and refuses to go
on when it differs: a total of which one query made one half and another query the other is wrong,
and nobody would notice.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator, Sequence

from holdfast.errors import StateError

# How many differences a refusal lists, and how long a line of it may be.
_LISTED = 8
_WIDTH = 160


def identity_of(description: Sequence[str]) -> str:
    """A digest of a description."""
    return hashlib.sha256("\n".join(description).encode()).hexdigest()


def refuse_changed(
    kept: Sequence[str], now: Sequence[str], where: str, otherwise: str = ""
) -> None:
    """Raise StateError with the differences unless both are one description.

    ``where`` says whose state it is, for example ``the state directory 'state'``; ``otherwise``
    what else can be done about it.
    """
    if list(kept) == list(now):
        return
    pairs = list(_differences(list(kept), list(now)))
    shown = [line for pair in pairs[:_LISTED] for line in _shown(*pair)]
    if len(pairs) > _LISTED:
        shown.append(f"and {len(pairs) - _LISTED} more")
    raise StateError(
        f"{where} has state of another query, which this one cannot go on with. What differs:\n"
        + "".join(f"  {line}\n" for line in shown)
        + "Go back to the query it was made with, or start over with a new directory"
        + (f"; {otherwise}" if otherwise else "")
    )


def _differences(kept: list[str], now: list[str]) -> Iterator[tuple[str, str]]:
    """Lines that were and what stands in their place; an empty text for nothing."""
    matcher = difflib.SequenceMatcher(None, kept, now, autojunk=False)
    for tag, first, last, start, end in matcher.get_opcodes():
        if tag == "equal":
            continue
        before, after = kept[first:last], now[start:end]
        length = max(len(before), len(after))
        before += [""] * (length - len(before))
        after += [""] * (length - len(after))
        yield from zip(before, after, strict=True)


def _shown(was: str, now: str) -> Iterator[str]:
    """Both lines; of long ones the part around the first difference."""
    pairs = enumerate(zip(was, now, strict=False))
    same = next((at for at, (old, new) in pairs if old != new), min(len(was), len(now)))
    yield f"was  {_around(was, same) or '(nothing)'}"
    yield f"now  {_around(now, same) or '(nothing)'}"


def _around(line: str, at: int) -> str:
    if len(line) <= _WIDTH:
        return line
    name, _, _ = line.partition(":")
    start = max(0, min(at - _WIDTH // 3, len(line) - _WIDTH))
    left = f"{name}: ..." if start else ""
    return left + line[start : start + _WIDTH] + ("..." if start + _WIDTH < len(line) else "")
