"""InverseLabelLoss in a plain torch loop: the loss owns the head and gamma, as in sentence-transformers.

A toy encoder (a bag of words) on a planted graph. Run: python examples/inverse_label_loss.py
"""

import numpy as np
import torch

from labeldeconv import InverseLabelLoss, Task, hop_labels, planted

graph = planted(2000, seed=0).graph
words = sorted({word for text in graph.texts for word in text.split()})
position = {word: i for i, word in enumerate(words)}
bags = [torch.tensor([position[w] for w in text.split()]) for text in graph.texts]

# Labels of your own: here every node has one. In practice: one-hot on train nodes, predictions elsewhere.
Y = Task.of(graph).targets(graph.labels)

torch.manual_seed(0)
encoder = torch.nn.EmbeddingBag(len(words), 64)
loss = InverseLabelLoss(hop_labels(graph.edges, Y, hops=2), head=torch.nn.Linear(64, graph.num_classes))
optimizer = torch.optim.AdamW([*encoder.parameters(), *loss.parameters()], lr=1e-2)

rng = np.random.default_rng(0)
for epoch in range(3):
    for ids in np.array_split(rng.permutation(graph.num_nodes), 40):
        flat, lengths = torch.cat([bags[i] for i in ids]), [len(bags[i]) for i in ids]
        features = encoder(flat, torch.tensor([0, *np.cumsum(lengths)[:-1]]))
        value = loss(features, ids)  # ids are node numbers, as an array or a tensor on any device
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {value:.3f}, gamma {[round(g, 3) for g in loss.gamma.tolist()]}")
