"""The pictures of docs/web.md and of the pages of results, of what really runs and really fails.

    make bench BENCH=web-pictures                  all of them
    make bench BENCH=web-pictures ARGS=cluster     these only: views, map, protections, ...

A source is cut off, the link healed, a replica killed; each view is taken when it has most to show.
The servers on the map are made up: they stand for machines in eight cities.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

from benchmarks.web_browser import Visitor, chromium
from benchmarks.web_made_up import look, mapped
from benchmarks.web_scenes import SCENES
from benchmarks.web_setting import running, write_deployment
from benchmarks.web_views import IMAGES, show_on_pages
from holdfast.web.serve import WebServer, serving

_SECONDS = 300.0
_COLOURS = 256


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    known = ["views", "map", *SCENES]
    parser.add_argument("pictures", nargs="*", help=f"of {', '.join(known)}; all if none is named")
    wanted = parser.parse_args().pictures or known
    if unknown := set(wanted) - set(known):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if "views" in wanted:
        _take_views()
    if "map" in wanted:
        _take_map()
    for name in SCENES:
        if name in wanted:
            SCENES[name](_take)
    show_on_pages()
    return 0


def _take_views() -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-pictures-") as directory:
        deployment = write_deployment(Path(directory))
        with (
            running(deployment),
            serving(WebServer(deployment)) as server,
            chromium() as browser,
        ):
            visitor = Visitor(browser, server.address)
            visitor.page.set_viewport_size({"width": 1440, "height": 640})
            visitor.come(server.link())
            _take_all(visitor)
            visitor.check()


def _take_map() -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-pictures-") as directory:
        deployment = mapped(Path(directory))
        with serving(WebServer(deployment)) as server, chromium() as browser:
            server.watch._looking.close()
            visitor = Visitor(browser, server.address)
            visitor.page.set_viewport_size({"width": 1440, "height": 640})
            visitor.come(server.link())
            for turn in (2, 3):
                server.watch.take_look(look(deployment, turn))
            # Nobody sends these outputs, and nobody supervises: that is no part of the picture.
            server.watch._readers.clear()
            visitor.show("physical")
            visitor.page.click("[data-process=main-2]")
            visitor.wait(lambda: visitor.page.is_hidden("#problem"), "the map alone")
            _take(visitor, "map")


def _take_all(visitor: Visitor) -> None:
    page = visitor.page
    _wait_state(visitor, "stable")
    _settle(visitor, 10.0)
    page.click("[data-name=aggregate_1]")
    _take(visitor, "logical")
    visitor.show("edit")
    visitor.wait(lambda: bool(page.input_value("textarea")), "the source")
    page.fill("textarea", page.input_value("textarea").replace("cpu > 5", "cpus > 5"))
    page.click("button:text-is('See what changes')")
    visitor.wait(lambda: page.locator(".wrong").count() == 1, "the mistake", _SECONDS)
    _take(visitor, "edit")
    visitor.show("controls")
    for replica in ("main-1", "main-2"):
        page.select_option("select[name=from]", "entry-pings")
        page.select_option("select[name=to]", replica)
        page.click("button:text-is('Cut')")
        visitor.wait_text("aside", f"cut entry-pings – {replica}")
    _wait_state(visitor, "up_failure")
    visitor.show("results")
    visitor.wait(lambda: page.locator("tr.tentative").count() > 10, "tentative rows", _SECONDS)
    _take(visitor, "results")
    visitor.show("physical")
    page.click("[data-process=main-1]")
    _settle(visitor, 2.0)
    _take(visitor, "physical")
    visitor.show("controls")
    page.click("button:text-is('Heal every link')")
    _wait_state(visitor, "stable")
    page.select_option("select[name=process]", "main-2")
    page.click("button:text-is('Kill')")
    _settle(visitor, 12.0)
    _take(visitor, "controls")
    visitor.show("timeline")
    page.click("button[title='closer (+)']")  # how it started is no part of the picture
    _settle(visitor, 2.0)
    _take(visitor, "timeline")


def _wait_state(visitor: Visitor, state: str) -> None:
    for name in ("main-1", "main-2"):
        visitor.wait(
            lambda name=name: visitor.state(f"live.nodes['{name}'].state") == state,  # type: ignore[misc]
            f"{name} {state}",
            _SECONDS,
        )


def _settle(visitor: Visitor, seconds: float) -> None:
    """Pictures of what goes on need some of it."""
    visitor.page.wait_for_timeout(1000 * seconds)


def _take(visitor: Visitor, view: str) -> None:
    path = IMAGES / f"web-{view}.png"
    taken = Image.open(io.BytesIO(visitor.page.screenshot()))
    # A page has few colours: a palette says them in a third of the bytes. The rare ones count, too:
    # a state is a small mark.
    kept = taken.convert("RGB").quantize(_COLOURS, Image.Quantize.MAXCOVERAGE)
    kept.save(path, optimize=True)
    print(path)


if __name__ == "__main__":
    sys.exit(main())
