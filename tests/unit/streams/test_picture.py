"""The picture of a topology: every operator once, nothing on top of another."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import ottla.streams as st

SVG = "{http://www.w3.org/2000/svg}"


def shop() -> st.App:
    app = st.App("shop")
    orders = app.stream("orders", value=st.Json("id string, item string, amount double"))
    big = orders.filter(lambda o: o.amount > 10)
    users = app.table("users", value=st.Json("name string"))
    named = big.join(users, lambda o, u: {"item": o.item, "who": u.name}).through("named")
    named.group_by(lambda o: o.item).count().to("counts")
    clicks = app.stream("clicks", value=st.Json("page string"))
    joined = big.join(clicks, lambda o, c: {"page": c.page}, within="5 minutes")
    joined.map_values(lambda o: f"<{o.page}>", schema="string").to("pages")
    return app


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


def test_no_box_covers_another() -> None:
    found = boxes(shop().picture())
    assert len(found) == 13
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
