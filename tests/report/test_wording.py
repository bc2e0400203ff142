from labeldeconv.report.wording import LONGEST, shortened


def test_long_names_end_in_an_ellipsis():
    assert shortened("short") == "short"
    assert shortened("x" * LONGEST) == "x" * LONGEST
    assert shortened("x" * (LONGEST + 1)) == "x" * (LONGEST - 1) + "…"
    assert shortened("several  words\non lines", 13) == "several word…"
