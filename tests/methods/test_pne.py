"""X_PNE: the encoder as it is."""

import numpy as np

from labeldeconv import fit
from labeldeconv.encoders.pretrained import load_encoder
from labeldeconv.settings.models import EncoderConfig

QUICK = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 5}


def test_features_are_the_encoders(graph, tmp_path):
    import torch

    result = fit(graph, method="pne", out=tmp_path / "r", **QUICK)
    encoder = load_encoder(EncoderConfig(name="tiny")).eval()
    ids = torch.tensor(encoder.tokenize([graph.texts[3]], 256))
    with torch.inference_mode():
        expected = encoder(ids, torch.ones_like(ids))[0].numpy()
    np.testing.assert_allclose(result.features[3], expected, atol=2e-3)  # float16
    assert result.encoder_nodes == 80
    assert (result.gamma, result.alpha, result.batch) == (None, None, None)
