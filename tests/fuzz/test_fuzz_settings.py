"""Settings as strings: every one is a Config, or is refused in words."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from labeldeconv.data.catalog import suggestions
from labeldeconv.settings.reading import label_settings, load_config, parse_config, parse_set, parse_vary, setting_names
from tests.fuzz.cases import fuzzed, json_value, text, told

names = st.one_of(st.sampled_from(setting_names()), text)
literals = st.one_of(text, json_value.map(repr), st.integers().map(str), st.floats().map(str))


@fuzzed("settings")
@given(st.lists(st.tuples(names, literals), max_size=3), literals, json_value, text)
def test_settings(pairs, number, values, name):
    def read():
        overrides = dict(parse_set(f"{key}={value}") for key, value in pairs)
        config = load_config(None, {**overrides, **label_settings(number, None)})
        assert load_config(None, tomllib.loads(config.to_toml())) == config
        return config

    told("settings", read)
    told("settings", lambda: parse_vary(f"{name}={number}"))
    told("settings", lambda: parse_config(values if isinstance(values, dict) else {name: values}))
    told("settings", lambda: suggestions(f"planted{name}"))
