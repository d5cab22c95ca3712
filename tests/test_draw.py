"""Networks as text and pictures."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast.errors import NetworkError
from holdfast.network import Network
from holdfast.windows import window


@pytest.fixture(scope="module")
def network(spark: SparkSession) -> Network:
    network = Network("monitoring", spark=spark)
    load = network.source("load", "at timestamp, server string, cpu double", stime="at")
    pings = network.source("pings", "server string, ms double", key="server")
    busy = load.filter(F.col("cpu") > 0.5)
    average = busy.fragment("averages").groupBy(window("10 seconds"), "server").agg("avg(cpu) AS c")
    average.output("busy")
    busy.drop("at").join(pings, on="server", within="1 second").output("both").output("all")
    return network


def test_describe_lists_operators_by_fragment(network: Network) -> None:
    text = network.describe()
    assert text.startswith("network monitoring\nfragment main\n  load ")
    lines = [line.strip() for line in text.splitlines()]
    assert "fragment averages" in lines
    assert "stime    the time of arrival, key server" in lines
    assert "columns  at timestamp, server string, cpu double" in lines
    assert "from     drop_1, pings" in lines
    assert "output   both, all" in lines
    starts = {re.search(r"\S", line[12:]) is not None for line in text.splitlines() if "  " in line}
    assert starts == {True}


def test_the_svg_is_well_formed_and_has_every_label(network: Network, tmp_path: Path) -> None:
    network.draw(str(tmp_path / "net.svg"))
    root = ElementTree.parse(tmp_path / "net.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    texts = [each.text for each in root.iter(f"{space}text")]
    for wanted in ("load", "pings", "busy", "both", "all", "fragment main", "fragment averages"):
        assert wanted in texts
    assert not any(text and "Column<" in text for text in texts)
    paths = [each for each in root.iter(f"{space}path") if each.get("marker-end")]
    assert len(paths) == 9


def test_boxes_do_not_overlap(network: Network, tmp_path: Path) -> None:
    network.draw(str(tmp_path / "net.svg"))
    root = ElementTree.parse(tmp_path / "net.svg").getroot()
    boxes = []
    for each in root.iter("{http://www.w3.org/2000/svg}rect"):
        if each.get("rx") == "6":
            x, y, width, height = (float(each.get(k, "0")) for k in ("x", "y", "width", "height"))
            boxes.append((x, y, x + width, y + height))
    assert len(boxes) == 10
    for i, (left, top, right, bottom) in enumerate(boxes):
        for other in boxes[i + 1 :]:
            apart = right < other[0] or other[2] < left or bottom < other[1] or other[3] < top
            assert apart


def test_a_png_is_drawn_and_other_names_are_refused(network: Network, tmp_path: Path) -> None:
    network.draw(str(tmp_path / "net.png"))
    assert (tmp_path / "net.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(NetworkError, match=r"must end in \.svg or \.png, not '\.gif'"):
        network.draw(str(tmp_path / "net.gif"))
