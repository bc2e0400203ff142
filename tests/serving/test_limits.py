"""Where a server may listen, and what it takes."""

import pickle

import pytest

from labeldeconv.errors import ConfigError
from labeldeconv.serving.limits import Limits, Serving, is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "[::1]", "localhost", "LOCALHOST"])
def test_loopback(host, tmp_path):
    assert is_loopback(host)
    assert Serving(tmp_path, host).token is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "example.org", "localhost.example.org", ""])
def test_any_other_address_needs_a_token(host, tmp_path):
    assert not is_loopback(host)
    with pytest.raises(ConfigError, match=r"can be reached by others and needs a token: set LABELDECONV_TOKEN"):
        Serving(tmp_path, host)
    assert Serving(tmp_path, host, token="a long and secret token").host == host


def test_values_that_are_not_accepted(tmp_path):
    for token in ("", "short", "with a line\nbreak in the middle"):
        with pytest.raises(ConfigError, match="a token of 16 printable characters or more"):
            Serving(tmp_path, token=token)
    with pytest.raises(ConfigError, match="--workers of 1 or more"):
        Serving(tmp_path, workers=0)
    with pytest.raises(ConfigError, match="limit 'nodes': above 0 expected, got 0"):
        Limits(nodes=0)


def test_the_token_travels_and_is_not_printed(tmp_path):
    serving = Serving(tmp_path, token="a long and secret token")
    assert "secret" not in repr(serving)
    assert pickle.loads(pickle.dumps(serving)) == serving
