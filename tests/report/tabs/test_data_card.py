import numpy as np

from labeldeconv.report.tabs.data_card import class_counts, degree_bins
from tests.report.run_writing import ring


def test_degree_bins_double():
    bins, names = degree_bins(np.array([0, 1, 2, 3, 4, 5, 8, 9, 16]))
    assert [names[b].replace("\u2013", "-") for b in bins] == [
        "0",
        "1",
        "2",
        "3-4",
        "3-4",
        "5-8",
        "5-8",
        "9-16",
        "9-16",
    ]


def test_class_counts_ignore_unknown_labels():
    graph = ring(12, multilabel=True)
    assert class_counts(graph)[0].tolist() == (graph.labels[graph.split.train] > 0).sum(0).tolist()
