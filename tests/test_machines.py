"""Two ranks on two hosts, network namespaces joined by a virtual cable, make one run of LD with SAGN."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from labeldeconv.labels.hops import write_hop_labels
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.runs.directory import RunDirectory

pytestmark = pytest.mark.thorough
FIT = ["fit", "planted:200", "--method", "ld", "--gnn", "sagn", "--encoder", "tiny"]
HOSTS = {f"labeldeconv-{os.getpid()}-{k}": (f"ld{k}", f"10.77.0.{k + 1}") for k in range(2)}


def ip(*words, **options):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False, **options)


@pytest.fixture
def hosts():
    """Names, interfaces and addresses of two hosts; they go at the end."""
    if shutil.which("ip") is None:
        pytest.skip("needs the command ip, of Debian's package iproute2")
    (one, (a, _)), (two, (b, _)) = HOSTS.items()
    made = [ip("netns", "add", name) for name in HOSTS]
    made.append(ip("link", "add", a, "netns", one, "type", "veth", "peer", "name", b, "netns", two))
    for name, (cable, address) in HOSTS.items():
        made += [ip("-n", name, "link", "set", link, "up") for link in ("lo", cable)]
        made.append(ip("-n", name, "addr", "add", f"{address}/24", "dev", cable))
    try:
        if wrong := [done.stderr for done in made if done.returncode]:
            pytest.skip(f"network namespaces cannot be made here: {wrong[0].strip()}")
        yield HOSTS
    finally:
        for name in HOSTS:
            ip("netns", "delete", name)


def sent(host, cable):
    """Bytes that a host has sent through its cable."""
    path = f"/sys/class/net/{cable}/statistics/tx_bytes"
    return int(ip("netns", "exec", host, "cat", path).stdout)


def test_two_hosts_make_one_run(hosts, tmp_path):
    """Its hop labels are those that one process makes of its Y, to the bit, and every node has features.

    Ranks draw dropout apart; without it all else is compared in tests/training.
    """
    common = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}
    common |= {"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29500", "LABELDECONV_CACHE": str(tmp_path / "cache")}
    started = []
    for rank, (name, (cable, _)) in enumerate(hosts.items()):
        own = {"RANK": str(rank), "LOCAL_RANK": "0", "GLOO_SOCKET_IFNAME": cable}
        command = ["ip", "netns", "exec", name, sys.executable, "-m", "labeldeconv", *FIT, "--out", "two"]
        started.append(subprocess.Popen(command, env={**common, **own}, cwd=tmp_path))
    assert [process.wait(timeout=300) for process in started] == [0, 0]
    assert all(sent(name, cable) > 100_000 for name, (cable, _) in hosts.items())
    two = RunDirectory.open(tmp_path / "two")
    two.verify()
    adj, Y = Adjacency.from_edges(two.graph.edges, two.graph.num_nodes), np.load(tmp_path / "two" / "pseudo_labels.npy")
    expected = write_hop_labels(adj, Y, two.hop_labels.shape[1] - 1, tmp_path / "K.npy")
    np.testing.assert_array_equal(two.hop_labels, expected)
    assert two.hop_labels[:, 1:].any()
    assert two.features.any(1).all()  # those of both hosts have come
