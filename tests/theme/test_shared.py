"""The look that all pages share."""

import re

from labeldeconv.report.html import write_report
from labeldeconv.theme.shared import theme
from tests.report.run_writing import ring, write_comparison


def test_the_report_has_the_shared_look(tmp_path):
    write_comparison(tmp_path, ring())
    page = write_report(tmp_path).path.read_text()
    assert theme("theme.css") in page
    assert theme("theme.js") in page


def test_dark_colours_are_the_same_by_the_system_and_by_the_switch():
    blocks = re.findall(r"data-theme=\"(?:light|dark)\"[^{]*\{([^}]*)\}", theme("theme.css"))
    assert len(blocks) == 2
    assert {line.strip() for line in blocks[0].splitlines()} == {line.strip() for line in blocks[1].splitlines()}


def test_every_colour_has_a_dark_one():
    light, dark = (
        set(re.findall(r"(--[a-z]+\d*): #", part)) for part in theme("theme.css").split("color-scheme: light")[:2]
    )
    assert len(light) > 18
    assert light == dark
