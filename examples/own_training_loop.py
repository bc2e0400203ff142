"""Inverse labels in a training loop of your own: three lines, marked 1 to 3.

A toy encoder (a bag of words) on a planted graph. Run: python examples/own_training_loop.py
"""

import numpy as np
import torch
import torch.nn.functional as F

from labeldeconv import InverseLabels, Task, hop_labels, planted

graph = planted(2000, seed=0).graph
words = sorted({word for text in graph.texts for word in text.split()})
position = {word: i for i, word in enumerate(words)}
bags = [torch.tensor([position[w] for w in text.split()]) for text in graph.texts]

# Labels of your own: here every node has one. In practice: one-hot on train nodes, predictions elsewhere.
Y = Task.of(graph).targets(graph.labels)

torch.manual_seed(0)
encoder = torch.nn.EmbeddingBag(len(words), 64)
head = torch.nn.Linear(64, graph.num_classes)
optimizer = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], lr=1e-2)

targets = InverseLabels(hop_labels(graph.edges, Y, hops=2))  # 1
optimizer.add_param_group({"params": targets.parameters(), "lr": 1e-2})  # 2

rng = np.random.default_rng(0)
for epoch in range(3):
    for ids in np.array_split(rng.permutation(graph.num_nodes), 40):
        batch = torch.nn.utils.rnn.pad_sequence([bags[i] for i in ids], batch_first=True)
        loss = F.cross_entropy(head(encoder(batch)), targets(ids))  # 3
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss:.3f}, gamma {[round(g, 3) for g in targets.gamma.tolist()]}")
