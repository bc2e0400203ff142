"""Inverse labels with transformers.Trainer: the data set yields node ids, `compute_loss` asks for their targets.

Any AutoModel works; this one is tiny and random so that the example runs anywhere in seconds.
Run: python examples/hf_trainer.py
"""

import tempfile

import torch
import torch.nn.functional as F
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from labeldeconv import InverseLabels, Task, hop_labels, planted

graph = planted(400, seed=0).graph
Y = Task.of(graph).targets(graph.labels)
tokens = [[1 + byte for byte in text.encode()][:64] for text in graph.texts]  # bytes; 0 fills up


class Nodes(torch.utils.data.Dataset):
    """Tokens of every node, and its number."""

    def __len__(self):
        return graph.num_nodes

    def __getitem__(self, i):
        return {"input_ids": torch.tensor(tokens[i]), "node": i}


def collate(rows):
    ids = torch.nn.utils.rnn.pad_sequence([r["input_ids"] for r in rows], batch_first=True)
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "node": torch.tensor([r["node"] for r in rows])}


class Deconvolving(Trainer):
    """A Trainer whose labels are inverse labels."""

    def compute_loss(self, model, inputs, return_outputs=False, **_):
        node = inputs.pop("node")
        outputs = model(**inputs)
        loss = F.cross_entropy(outputs.logits, model.targets(node))
        return (loss, outputs) if return_outputs else loss


model = BertForSequenceClassification(
    BertConfig(vocab_size=300, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_labels=graph.num_classes)
)
model.targets = InverseLabels(hop_labels(graph.edges, Y, hops=2))  # a part of the model, so gamma trains with it
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        folder, num_train_epochs=1, per_device_train_batch_size=32, remove_unused_columns=False, report_to="none",
        use_cpu=True, save_strategy="no", learning_rate=1e-3, disable_tqdm=True,
    )  # fmt: skip
    result = Deconvolving(model, settings, train_dataset=Nodes(), data_collator=collate).train()
print(f"loss {result.training_loss:.3f}, gamma {[round(g, 3) for g in model.targets.gamma.tolist()]}")
