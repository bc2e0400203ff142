"""The number of torch's threads, put back after a test."""

import pytest
import torch


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)
