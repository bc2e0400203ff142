"""Hypothesis's profiles and the values that the fuzzing is made of.

`make test` runs a seeded 2,000 cases in all; `make fuzz` (CASES, 100,000 unless said otherwise) runs other cases every
time, keeps what fails in .hypothesis, from which the next run goes on, and prints cases and distinct error messages.
"""

import atexit
import os
import re
from collections import Counter

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from labeldeconv.errors import LabelDeconvError

TOTAL = int(os.environ.get("FUZZ_CASES", "2000"))
SEEDED = "FUZZ_CASES" not in os.environ
SHARES = {  # of the cases, by what is fuzzed: a folder of tables costs 80 ms of CPU, a string of settings 1 ms
    "tables": 0.05, "parquet": 0.02, "toml": 0.02, "fasta": 0.12, "debian": 0.14, "conllu": 0.08, "ogb": 0.015,
    "saved": 0.13, "result": 0.07, "logs": 0.07, "settings": 0.225, "pickled": 0.04, "single": 0.02,
}  # fmt: skip
seen: Counter[str] = Counter()
cases: Counter[str] = Counter()


def fuzzed(what: str):
    """The settings of one fuzz test: its share of all cases; seeded in the normal test run."""
    return settings(
        max_examples=max(1, round(TOTAL * SHARES[what])),
        deadline=None,
        derandomize=SEEDED,
        phases=[Phase.generate] if SEEDED else list(Phase),  # what fails is made small by `make fuzz` only
        database=None if SEEDED else settings.default.database,
        suppress_health_check=list(HealthCheck),
    )


def told(what: str, call) -> object:
    """The value of a call, or None where it refused its input in words; anything else fails the test."""
    cases[what] += 1
    try:
        return call()
    except LabelDeconvError as error:
        text = str(error)
        assert text.strip()
        shape = re.sub(r"'[^']*'|[0-9]+|/\S+", "_", text.splitlines()[-1])[:60]
        seen[f"{what}: {shape}"] += 1
        return None


@atexit.register
def _count() -> None:
    if not SEEDED:
        print(f"\nfuzz: {sum(cases.values()):,} cases ({dict(cases)}), {len(seen)} distinct error messages")


NASTY = [
    "", " ", "a", "b", "7", "007", "1.0", "nan", "NaN", "inf", "-inf", "1e300", "None", "null", "<NA>", "[red]x[/]",
    "[/]", "\x1b[2J", "\x00", "a\tb", "a\nb", "a\r\nb", '"', "'", "a,b", "🙂", "日本", "\ufeff", "\u2028", "9" * 23,
    "-1", "true", "train", "val", "test", "0", "1", "{", "[1, 2]", '{"a": 1}', "x" * 300, "../../x", "/abs", "%s",
    "{0}",
]  # fmt: skip
text = st.one_of(st.sampled_from(NASTY), st.text(max_size=8))
value = st.one_of(
    text, st.none(), st.booleans(), st.integers(), st.floats(), st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip
json_value = st.recursive(value, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3))
