"""Whether phi(A-hat) is invertible, exactly and from bounds."""

import pytest

from labeldeconv.analysis.phi import power
from labeldeconv.analysis.spectrum import spectrum
from labeldeconv.analysis.structure import known_eigenvalues
from labeldeconv.propagation.adjacency import Adjacency
from tests.analysis.closed_forms import bipartite, cycle
from tests.samples import random_edges


def test_complete_bipartite_graph_is_not_invertible():
    """K_{a,b}: 1, -1, and 0 a + b - 2 times."""
    graph = bipartite(3, 4)
    found = spectrum(graph, phi={"A": power(1), "shifted": [1.5, 1.0], "half": [0.5, -0.5]})
    assert found.multiple[0].multiplicity == 5
    by_name = {p.name: p for p in found.phi}
    assert by_name["A"].invertible is False
    assert by_name["A"].near_zero == pytest.approx(5 / 7)
    assert by_name["shifted"].invertible is True
    assert (by_name["shifted"].smallest, by_name["shifted"].largest) == pytest.approx((0.5, 2.5))
    assert by_name["half"].invertible is False  # zero at 1
    assert known_eigenvalues(Adjacency.from_edges(*graph)) == {1.0: 1, -1.0: 1, 0.0: 5}


def test_bounds_that_decide_and_that_do_not():
    """Not exact: equal neighbours make 0 certain; an odd cycle has no 0, but nothing known tells so."""
    (known,) = spectrum(bipartite(3, 4), phi={"A": power(1)}, dense_nodes=1).phi
    (open_question,) = spectrum(cycle(401), phi={"A": power(1)}, dense_nodes=1).phi
    assert known.invertible is False
    assert open_question.invertible is None
    assert spectrum(cycle(401), phi={"A": power(1)}).phi[0].invertible is True


def test_planted_phi_of_the_generator_is_invertible():
    """phi = A - 1.2 I has no zero in [-1, 1]: decided on any graph, exact or not."""
    edges = random_edges(60, 150), 60
    for limit in (100, 10):
        (phi,) = spectrum(edges, phi={"planted": [-1.2, 1.0]}, dense_nodes=limit).phi
        assert phi.invertible is True
        assert phi.smallest == pytest.approx(0.2, abs=1e-6)
