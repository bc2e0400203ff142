"""The line chart as an SVG."""

from xml.etree import ElementTree

from labeldeconv.analysis.line_chart import Curve, line_chart


def test_chart_survives_flat_and_escapes():
    svg = line_chart([("a < b", [Curve("flat & even", [1, 2], [0.5, 0.5])])], columns=1)
    told = [node.text for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert {"a < b", "flat & even"} <= set(told)
    (line,) = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}polyline")
    points = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
    assert points[0][1] == points[1][1]  # flat
    assert points[0][0] < points[1][0]
