from __future__ import annotations

from xml.etree import ElementTree

from bench.svg_plot import Line, Plot, document

SVG = "{http://www.w3.org/2000/svg}"


def drawn(*plots: Plot) -> ElementTree.Element:
    return ElementTree.fromstring(document(plots))


def test_a_plot_is_well_formed_svg_with_its_words_escaped() -> None:
    root = drawn(Plot("a < b & c", "x", "y", [Line("one", [(0, 0), (1, 2)])]))

    words = [element.text for element in root.iter(f"{SVG}text")]
    assert "a < b & c" in words
    assert "one" in words


def test_higher_values_are_drawn_higher_and_later_ones_further_right() -> None:
    root = drawn(Plot("t", "x", "y", [Line("one", [(0, 1), (5, 3), (10, 2)])]))

    (line,) = root.iter(f"{SVG}polyline")
    points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert points[1][1] < points[2][1] < points[0][1]


def test_a_limit_above_all_values_is_still_in_the_picture() -> None:
    root = drawn(Plot("t", "x", "y", [Line("one", [(0, 1), (1, 1)])], [("limit", 400.0)]))

    rules = [rule for rule in root.iter(f"{SVG}line") if "stroke-dasharray" in rule.attrib]
    assert len(rules) == 1
    assert 0 < float(rules[0].attrib["y1"]) < 320


def test_panels_are_below_each_other() -> None:
    plot = Plot("t", "x", "y", [Line("one", [(0, 1), (1, 1)])])

    groups = [group.attrib["transform"] for group in drawn(plot, plot).iter(f"{SVG}g")]

    assert groups == ["translate(0 0)", "translate(0 320)"]
