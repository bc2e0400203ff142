"""The line chart as an SVG."""

from xml.etree import ElementTree

from labeldeconv.analysis.line_chart import Curve, line_chart


def test_chart_survives_flat_and_escapes():
    svg = line_chart([("a < b", [Curve("flat & even", [1, 2], [0.5, 0.5])])], columns=1)
    ElementTree.fromstring(svg)
