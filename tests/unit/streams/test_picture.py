"""Tests of the topology picture: every operator appears once, and nothing overlaps."""

from __future__ import annotations

import importlib.util
import itertools
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest

import ottla.streams as st

SVG = "{http://www.w3.org/2000/svg}"
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
MAX_WIDTH = 1000
ORDER = st.Json("id string, item string, amount double, country string")


def shop() -> st.App:
    app = st.App("shop")
    orders = app.stream("orders", value=st.Json("id string, item string, amount double"))
    big = orders.filter(lambda o: o.amount > 10)
    users = app.table("users", value=st.Json("name string"))
    big.join(users, lambda o, u: {"item": o.item, "who": u.name}).to("named")
    named = app.stream("named", value=st.Json("item string, who string"))
    named.group_by(lambda o: o.item).count().to("counts")
    clicks = app.stream("clicks", value=st.Json("page string"))
    joined = big.join(clicks, lambda o, c: {"page": c.page}, within="5 minutes")
    joined.map_values(lambda o: f"<{o.page}>", schema="string").to("pages")
    return app


def fraud() -> st.App:
    spec = importlib.util.spec_from_file_location("fraud", EXAMPLES / "fraud.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    app = st.App("fraud")
    module.build(app)
    return app


def long_chain() -> st.App:
    app = st.App("chain")
    orders = app.stream("orders", value=ORDER)
    chained = orders
    for _ in range(25):
        chained = chained.map_values(lambda o: {"id": o.id, "amount": o.amount + 1})
    big = orders.filter(lambda o: o.amount > 0)
    chained.join(big, lambda a, b: {"amount": b.amount}, within="1 minute").to("late")
    return app


def wide_joins() -> st.App:
    app = st.App("wide")
    orders = app.stream("orders", value=ORDER)
    joined = orders
    for number in range(8):
        table = app.table(f"reference-table-number-{number}", value=st.Json("name string"))
        joined = joined.join(table, lambda o, u: {"id": o.id, "country": u.name})
    joined.to("joined")
    for number in range(9):
        orders.filter(lambda o: o.amount > 10).to(f"an-output-topic-with-a-long-name-{number}")
    return app


def very_wide_fan_out() -> st.App:
    app = st.App("fan")
    orders = app.stream("orders", value=ORDER)
    for number in range(60):
        orders.filter(lambda o: o.amount > 10).to(f"output-{number}")
    return app


def long_names() -> st.App:
    app = st.App("names")
    app.stream("a" * 249, value=ORDER).to("b" * 249)
    return app


SHAPES: list[Callable[[], st.App]] = [
    shop,
    fraud,
    long_chain,
    wide_joins,
    very_wide_fan_out,
    long_names,
]


def boxes(svg: str) -> list[tuple[float, float, float, float]]:
    root = ElementTree.fromstring(svg)
    found = [each.attrib for each in root.iter(f"{SVG}rect") if "rx" in each.attrib]
    return [
        (float(each["x"]), float(each["y"]), float(each["width"]), float(each["height"]))
        for each in found
        if float(each["width"]) > 12
    ]


def titles(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [str(each.text) for each in root.iter(f"{SVG}text") if "font-weight" in each.attrib]


def test_shared_operators_are_drawn_once() -> None:
    assert sorted(titles(shop().picture())) == sorted(
        [
            "stream orders", "filter", "table users", "inner join", "to named", "stream named",
            "select_key", "aggregate", "to counts", "stream clicks", "inner join", "map_values",
            "to pages",
        ]
    )  # fmt: skip


@pytest.mark.parametrize("build", SHAPES)
def test_no_box_covers_another(build: Callable[[], st.App]) -> None:
    found = boxes(build().picture())
    for number, (x, y, width, height) in enumerate(found):
        for x2, y2, width2, height2 in found[number + 1 :]:
            apart = x + width <= x2 or x2 + width2 <= x or y + height <= y2 or y2 + height2 <= y
            assert apart


def test_a_topic_that_is_read_again_is_joined_by_a_dashed_line() -> None:
    assert shop().picture().count("stroke-dasharray") == 1


def test_what_runs_a_step_is_its_colour() -> None:
    svg = shop().picture()
    assert len(re.findall("#e6f4ea", svg)) == 3, "two with state, and the legend"
    assert len(re.findall("#fff4e0", svg)) == 2, "one in Python, and the legend"


def test_the_same_plan_gives_the_same_picture() -> None:
    assert shop().picture() == shop().picture()


def test_an_application_that_reads_what_it_writes_can_be_drawn() -> None:
    app = st.App("circle")
    app.stream("a").to("b")
    app.stream("b").to("a")
    assert len(boxes(app.picture())) == 4


def lines(svg: str) -> list[list[tuple[float, float]]]:
    """Return the start and end points of each line's straight and curved segments."""
    root = ElementTree.fromstring(svg)
    found = []
    for each in root.iter(f"{SVG}path"):
        if "marker-end" not in each.attrib:
            continue
        points = []
        for part in re.findall("[MLC][^MLC]*", each.attrib["d"]):
            numbers = [float(number) for number in part[1:].split()]
            points.append((numbers[-2], numbers[-1]))
        found.append(points)
    return found


@pytest.mark.parametrize("build", SHAPES)
def test_every_line_leads_from_the_bottom_of_a_box_to_the_top_of_another(
    build: Callable[[], st.App],
) -> None:
    svg = build().picture()
    found = boxes(svg)

    def is_border(x: float, y: float, *, is_top: bool) -> bool:
        return any(
            left <= x <= left + width and abs(y - (top if is_top else top + height)) <= 0.2
            for left, top, width, height in found
        )

    assert lines(svg)
    for points in lines(svg):
        assert is_border(*points[0], is_top=False)
        assert is_border(*points[-1], is_top=True)


@pytest.mark.parametrize("build", SHAPES)
def test_no_line_runs_behind_a_box(build: Callable[[], st.App]) -> None:
    svg = build().picture()
    drawn = boxes(svg)
    for points in lines(svg):
        for (x1, y1), (x2, y2) in itertools.pairwise(points):
            for left, top, width, height in drawn:
                # A curved segment stays within the rectangle that its end points span.
                beside = max(x1, x2) <= left + 0.2 or min(x1, x2) >= left + width - 0.2
                assert beside or y2 <= top + 0.2 or y1 >= top + height - 0.2


@pytest.mark.parametrize("build", SHAPES)
def test_a_picture_is_at_most_1000_wide_and_holds_everything(build: Callable[[], st.App]) -> None:
    svg = build().picture()
    root = ElementTree.fromstring(svg)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    assert (root.attrib["width"], root.attrib["height"]) == (f"{width:.0f}", f"{height:.0f}")
    assert width <= MAX_WIDTH
    group = next(root.iter(f"{SVG}g"))
    scale = float(group.attrib.get("transform", "scale(1)")[len("scale(") : -1])
    for left, top, box_width, box_height in boxes(svg):
        assert left * scale >= 0
        assert (left + box_width) * scale <= width + 0.5
        assert (top + box_height) * scale <= height
    for points in lines(svg):
        assert all(0 <= x * scale <= width for x, _ in points)


def test_a_picture_that_fits_is_not_scaled() -> None:
    assert all("scale(" not in build().picture() for build in (shop, fraud, long_chain, wide_joins))


def test_a_long_title_is_shortened_and_whole_in_its_tooltip() -> None:
    svg = long_names().picture()
    assert titles(svg) == [f"stream {'a' * 32}…", f"to {'b' * 36}…"]
    root = ElementTree.fromstring(svg)
    assert [each.text for each in root.iter(f"{SVG}title")] == [
        f"stream {'a' * 249}", f"to {'b' * 249}",
    ]  # fmt: skip
