"""What can be set: one small frozen model per phase, a line under each field. `Config` is what a run is made of.

A `Config` remembers which fields were said (`model_fields_set`); what a data set or a GNN suggests stands under those
(`settings.reading.with_suggestions`).
"""

from __future__ import annotations

from typing import Annotated, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Layers = Annotated[int, Field(ge=1, le=1000)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # what NumPy, torch and scikit-learn all take
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
Share = Annotated[float, Field(gt=0.0, lt=1.0)]
NonNegative = Annotated[float, Field(ge=0.0)]
Normalization = Annotated[Literal["row", "symmetric"], Field(description="D^-1 A, or D^-1/2 A D^-1/2.")]
AUTO_GNN = "auto"  # the name that lets the validation nodes choose the GNN (methods/gnn_race.py)
YOUNGER = {"younger": True}  # marks a setting that came later than others: at its default it is in no stage's key
UNKEYED = {"unkeyed": True}  # marks a setting that changes no result and so is in no stage's key
CheckpointMinutes = Annotated[float, Field(ge=0.0, json_schema_extra=UNKEYED)]
MetricName = Literal[
    "accuracy", "macro-f1", "micro-f1", "balanced-accuracy", "average-precision", "roc-auc", "r2", "mae", "rmse"
]
RegressionLoss = Literal["mse", "huber"]
SelfLoops = Annotated[bool, Field(description="Add the node itself to its neighbours.")]


class Settings(BaseModel):
    """Base of all settings: frozen, strict about names and types."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class AdjacencyConfig(Settings):
    """How A-hat is made from the edges."""

    normalization: Normalization = "row"
    self_loops: SelfLoops = False
    undirected: bool = True
    """Let every edge work both ways."""


class GNNAdjacencyConfig(AdjacencyConfig):
    """How the GNN's A-hat is made: as in a GCN, unless the GNN, the data set or the user says otherwise."""

    normalization: Normalization = "symmetric"
    self_loops: SelfLoops = True


class EncoderConfig(Settings):
    """The node encoder f(.; beta)."""

    name: str = "minilm"
    """A name from `labeldeconv list`, a Hugging Face hub id, a local folder, 'COLUMN=ENCODER,...' or 'module:Name'."""
    layers: Count | None = None
    """Keep only this many first layers; None keeps all."""
    train_layers: Count | None = None
    """Train only this many last layers; None trains all. The layers before them run once, in evaluation mode, and their
    token states are kept on disk in float16 for all methods and seeds: 2 bytes x tokens x width."""
    revision: str | None = None
    """Branch, tag or commit of a hub id; None takes the newest."""
    pooling: Literal["auto", "mean", "first", "last", "max", "root-mean", "weighted"] = "auto"
    """How token states become one vector. 'auto': as the folder's modules.json says (sentence-transformers), with its
    dense layers and prompts, and the mean where it has none; others: this alone, over the last layer."""
    normalize: bool | None = None
    """Scale features to length 1; None: as modules.json says."""
    dim: Count | None = None
    """Keep only the first numbers of a feature, for encoders that were trained for it (matryoshka); None keeps all."""
    prompt: str | None = None
    """Text before every attribute, such as 'passage: ' for e5, or the name of a prompt of the folder; None: the
    folder's default, if it has one."""
    adapt: Literal["none", "giant"] = "none"
    """'giant' first teaches the encoder to predict neighbourhoods, without labels, as the method 'giant' does; then
    every method starts from that encoder instead of the pre-trained one."""
    max_tokens: Annotated[int, Field(ge=4)] = 256
    """Longer attributes are cut."""
    lora_rank: Annotated[int, Field(ge=0)] = 0
    """Train low-rank adapters of this rank instead of all weights (extra 'lora'); 0 trains everything."""
    weights: Literal["float32", "bfloat16", "4bit"] = "float32"
    """How the pre-trained weights are kept. In bfloat16 they take half of the memory, in 4 bits (extra '4bit') an
    eighth; then they stay as they are, and training needs adapters (`lora_rank`)."""
    lora_alpha: Positive | None = None
    """Scale of the adapters: what they add is multiplied by alpha / rank; None: twice the rank."""
    lora_dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Dropout before the adapters."""
    lora_targets: Annotated[list[str], Field(min_length=1)] | None = None
    """Names, or ends of names, of the linear layers that get adapters, such as query and value; None: all."""


class LabelConfig(Settings):
    """Pseudo, hop and inverse labels."""

    hops: Annotated[int, Field(ge=0, le=1000)] | None = None
    """N of eqn:inv_label, so N + 1 slices; None takes the GNN's number of convolutions."""
    alpha: Fraction = 1.0
    """Share of the inverse labels in the target (eqn:implementation); 0 is WO/LD."""
    gamma: Literal["learned", "auto"] = "learned"
    """Start uniform and learn with the encoder, as in the paper; 'auto' chooses gamma (and so alpha and N) by a closed
    form on the validation nodes, before training: Y alone, as WO/LD, unless more is surely better."""
    targets: Literal["mix", "hops"] = "mix"
    """What the encoder learns of K: the mix Y(gamma), as in the paper, or every K_i behind a head of its own, which
    needs no gamma (docs/hop-heads.md). The method 'ld-heads' is 'ld' with 'hops'."""
    own: Literal["known", "all"] = "known"
    """'hops': nodes on which the head of K_0 = Y is trained: those with a known label, or all, on pseudo labels."""
    hop_weights: Annotated[list[NonNegative], Field(min_length=1)] | None = None
    """'hops': weights of the heads in the loss, hop 0 first, of which only the ratios count; None: all equal."""
    temperature: Positive = 1.0
    """Pseudo labels are softmax(logits / temperature), or sigmoid."""
    rounds: Count = 1
    """Times the encoder is trained, each time from its first weights on the pseudo labels of a GNN that has the
    features of the time before: once in the paper, twice in the authors' code for SAGN."""
    nodes: Literal["all", "train"] = "all"
    """Nodes the encoder is trained on: all, as in the paper, or the train nodes. On small graphs an encoder learns the
    pseudo labels of the others by heart, and the GNN then repeats the one that made them."""
    pseudo_weight: Fraction | None = None
    """Loss = (1 - w) mean over train nodes + w mean over the others (the authors' code); None: one plain mean."""
    adjacency: AdjacencyConfig = AdjacencyConfig()
    """The A-hat of K_i = A-hat^i Y."""
    store: Literal["uint16", "float32"] = "uint16"
    """How K is kept on disk: fixed point (half the memory, at most 7.7e-6 off per hop), or float32."""
    engine: Literal["local", "spark"] = "local"
    """Who computes K: this machine, or Spark (extra 'spark') at `master`; equal to 1e-6, and so kept apart."""
    master: Annotated[str, Field(json_schema_extra=UNKEYED)] = "local-cluster[2,1,1024]"
    """Spark's master: 'local-cluster[WORKERS,CORES,MIB]' on this machine, 'spark://HOST:7077', ... Changes no result
    beyond 1e-6."""


class TrainConfig(Settings):
    """Training phase of the encoder (Algorithm 1, lines 6-11)."""

    epochs: Count = 3
    """Passes over the training nodes of the method."""
    lr: NonNegative = 5e-5
    """Peak learning rate of the encoder, beta; 0, in joint training, leaves it as it is: fixed features."""
    psi_lr: Positive = 1e-3
    """Peak learning rate of psi, theta, and of a linear layer in its place."""
    gamma_lr: NonNegative = 1e-3
    """Peak learning rate of gamma'. The authors use the encoder's, under which gamma hardly moves."""
    weight_decay: NonNegative = 0.01
    """AdamW decay of encoder and psi; gamma' has none."""
    warmup: Fraction = 0.1
    """Share of the training over which the learning rates rise; then they fall linearly to 0."""
    clip: NonNegative = 1.0
    """Largest norm of the gradient; 0 does not clip."""
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Dropout on the encoder's output, before psi."""
    batch_nodes: Count = 32
    """Nodes per batch at most."""
    batch_tokens: Count = 16384
    """Tokens per batch at most, padding included."""
    accumulate: Count = 1
    """Batches per optimiser step."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """'auto' takes bfloat16 where the hardware has it; parts of an encoder that cannot compute in it take float32."""
    gradient_checkpointing: bool = False
    """Recompute the activations of all layers instead of storing them. Under `max_memory` those of as many layers as a
    step needs to fit are recomputed anyway, to the same results."""
    optimizer_states: Annotated[Literal["float32", "bfloat16", "8bit"], Field(json_schema_extra=YOUNGER)] = "float32"
    """How AdamW's two moments of matrices are kept between steps: 8, 4 or 2 bytes a weight."""
    head: Literal["linear", "psi"] = "linear"
    """What FNE and GLEM put behind the encoder: one linear layer, as in the paper, or psi of the GNN. LD and WO/LD
    always have psi."""
    psi_init: Literal["fresh", "gnn"] = "fresh"
    """Start psi from new weights, or from the first GNN (planted, SAGN: 90.0 against 64.5 test accuracy)."""
    psi_norm: Literal["batch", "running", "layer"] = "batch"
    """BatchNorm in psi: of the batch, of moving averages, or LayerNorm instead (measured: gnns/norms.py)."""
    parallel: Annotated[Literal["ddp", "fsdp"], Field(json_schema_extra=UNKEYED)] = "ddp"
    """Under torchrun: 'ddp' keeps the whole encoder on every rank, 'fsdp' a part of every weight, its gradient and
    AdamW's moments, for encoders that do not fit (docs/distributed.md). One process ignores it. Results are equal."""
    checkpoint_minutes: CheckpointMinutes = 2.0
    """Time between checkpoints; 0 writes one after every step. Does not change results."""


class SelfTrainingConfig(Settings):
    """Stages in which confident predictions teach the next GNN (SAGN's SLE, GAMLP's reliable labels)."""

    stages: Count = 1
    """GNNs trained one after the other; 1 is no self-training."""
    threshold: Fraction = 0.85
    """Least probability of a confident prediction."""
    weight: NonNegative = 0.1
    """Weight of the loss on a confident node, times its largest probability, beside 1 of a train node (GAMLP)."""


class LabelReuseConfig(Settings):
    """Labels as inputs of a GNN that reads them (option label_inputs of RevGAT): Bag of Tricks, RevGAT's code."""

    shown: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.5
    """Share of the train labels that an epoch shows, drawn anew; it learns from the other train nodes. Predictions are
    made with all of them shown."""
    iterations: Annotated[int, Field(ge=0)] = 1
    """Times that predictions take the place of labels not shown, before the pass that counts."""


class ConsistencyConfig(Settings):
    """Agreement with a mean teacher on unlabelled nodes (SCR)."""

    weight: NonNegative = 0.0
    """Weight of the term; 0 leaves it out."""
    predictions: Count = 2
    """Predictions of the teacher under dropout that are averaged; the code of SCR with a mean teacher takes 1."""
    temperature: Positive = 0.5
    """Sharpens their mean."""
    distance: Literal["kl", "mse"] = "kl"
    """KL of the GNN's prediction from the sharpened one, or their squared distance."""
    threshold: Fraction = 0.85
    """Least probability of a prediction that counts, at the start."""
    final_threshold: Fraction = 0.75
    """The same at the last epoch."""
    teacher_decay: Fraction = 0.99
    """Share of the old teacher in the new one, per step."""
    warmup_epochs: Annotated[int, Field(ge=0)] = 0
    """Epochs without the term."""


class GNNConfig(Settings):
    """The GNN and its training phase (Algorithm 1, lines 14-17).

    Defaults are those of a GCN: RevGAT, GAT, GAMLP and SAGN suggest others (`GNN.suggests`, docs/gnns.md).
    """

    name: str = "gcn"
    """'gcn', 'sage', 'gat', 'revgat', 'gamlp', 'sagn', 'appnp', 'spegcn', 'spegnn', 'mlp', 'package.module:Name', or
    'auto': a race on X_PNE by the score on validation nodes, which is what `fit` does unless a GNN is named."""
    candidates: Annotated[list[str], Field(min_length=1)] | None = None
    """'auto': the GNNs that race; None: all that `labeldeconv list` names. Equal scores: the one that stands first."""
    race_minutes: Positive = 5.0
    """'auto': how long the race may take, counted as work at the speed of two ordinary cores, so that a busy machine
    changes no choice; on large graphs at least as long as 12 trainings of the cheapest candidate."""
    layers: Layers = 2
    """Convolutions; hops for GAMLP and SAGN; of APPNP, the spectral GNNs and the MLP layers of the MLP."""
    hidden: Count = 256
    """Width."""
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.5
    """Dropout between layers."""
    options: dict[str, bool | int | float | str] = {}
    """Settings of this GNN alone; `labeldeconv list` names them."""
    output_bias: Literal["frequency", "fresh"] = "frequency"
    """Where outputs of a multi-label GNN and of its psi start: at the labels' frequencies, or as the layer's own
    initialisation has it, near even odds (yeast, 203 labels, 150 epochs: 84.9 against 70.0 ROC-AUC)."""
    inputs: Literal["learned", "both"] = "learned"
    """What the last GNN of FNE, WO/LD, LD and GIANT reads: the method's features, or X_PNE beside them, both
    standardised."""
    init: Literal["fresh", "psi"] = "fresh"
    """Start the last GNN from new weights, or from psi of the encoder phase (the authors' code); GLEM's, GIANT's,
    FNE's behind a linear layer and those of methods without an encoder phase always start fresh."""
    optimizer: Literal["adam", "adamw", "rmsprop"] = "adam"
    """Of the GNN phase."""
    lr: Positive = 0.01
    """Learning rate."""
    weight_decay: NonNegative | None = None
    """Weight decay; None: 5e-4, but 0 for multi-label tasks, whose mean loss it drowns (yeast: 75.7, not 84.9)."""
    warmup_epochs: Annotated[int, Field(ge=0)] = 0
    """Epochs over which the learning rate rises."""
    schedule: Literal["linear", "constant"] = "linear"
    """What it does then: fall linearly to 0 (measured: up to 7 points better, docs/gnns.md), or stay."""
    epochs: Count = 200
    """Passes at most."""
    patience: Count | None = None
    """Stop after this many evaluations without a better score; None never does, so that a falling rate ends."""
    eval_every: Count = 1
    """Epochs from one evaluation to the next."""
    loss: Literal["cross-entropy", "log"] = "cross-entropy"
    """'log' is log(e + l) - log(e) of every node's cross entropy l, e = 1 - ln 2: nodes far off count less (RevGAT's
    code)."""
    choose: Literal["score", "loss"] = "score"
    """The epoch that is kept has the best score on the validation nodes, or the lowest loss (RevGAT's code)."""
    batching: Literal["full", "neighbors", "clusters"] = "full"
    """For GNNs fed by the graph: all of it, sampled neighbours, or METIS clusters (extra 'metis')."""
    batch_nodes: Count = 1024
    """'neighbors': nodes per batch."""
    fanouts: Annotated[list[Count], Field(min_length=1)] = [10]
    """'neighbors': neighbours drawn per convolution, first to last; one number serves all."""
    clusters: Count = 64
    """'clusters': number of parts."""
    clusters_per_batch: Count = 8
    """'clusters': parts per batch."""
    batch_rows: Count = 50_000
    """Rows per batch for GNNs fed by rows of hop features."""
    self_training: SelfTrainingConfig = SelfTrainingConfig()
    consistency: ConsistencyConfig = ConsistencyConfig()
    label_reuse: LabelReuseConfig = LabelReuseConfig()
    checkpoint_minutes: CheckpointMinutes = 2.0
    """Time between checkpoints; 0 writes one after every epoch. Does not change results."""
    adjacency: GNNAdjacencyConfig = GNNAdjacencyConfig()
    """The A-hat of the GNN."""


class GiantConfig(Settings):
    """Neighbourhood prediction of the method 'giant'."""

    coarsest: Count = 5
    """The first level has 2^coarsest clusters."""
    finest: Count = 14
    """The last level of clusters has at most 2^finest of them."""
    step: Count = 3
    """Levels of the tree from one training to the next: 3 makes clusters 8 times smaller."""
    cluster_size: Count = 8
    """Nodes per cluster of the last level of clusters, about."""
    single_nodes: Annotated[int, Field(ge=0)] = 200_000
    """Graphs of at most so many nodes are trained down to single nodes, as published. Their head takes 12 (d + 1) bytes
    a node: 1.8 GB at 200,000 nodes and d = 768."""
    negatives: Count = 1024
    """Outputs drawn for a batch beside the clusters or nodes that its nodes link to; levels with no more take all."""
    ngram: Count = 3
    """Residues in a word of the TF-IDF by which proteins are clustered. Texts have words, pairs of words and triples
    of characters, as published."""
    max_degree: Count = 1000
    """Nodes with this many neighbours or more are not trained on."""
    epochs: Count = 1
    """Passes over the nodes per level."""


class GlemConfig(Settings):
    """EM rounds of the method 'glem'."""

    rounds: Count = 2
    """E-steps, each followed by an M-step."""
    first: Literal["gnn", "encoder"] = "gnn"
    """Who makes the first pseudo labels: a GNN on X_PNE, or an encoder trained on the true labels."""
    temperature: Positive = 0.2
    """Of the pseudo labels, both ways, and of the label inputs."""
    epochs: Count | None = None
    """Passes of an E-step; None: train.epochs. Published: 3 (RevGAT), 1 (GCN)."""
    pretrain_epochs: Count | None = None
    """Passes over the true labels before the rounds, where the encoder is first; None: train.epochs. Published: 4."""
    label_smoothing: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Share of a true label spread over all classes, for the encoder. Published: 0.3 (arxiv), 0.1 (products)."""
    label_input: bool = False
    """Let the GNN read the distribution that the encoder predicts beside its features. Published: yes, for the GCN."""
    encoder_ratio: NonNegative = 1.0
    """Pseudo-labelled nodes in the E-step, per train node."""
    encoder_weight: Fraction = 0.5
    """Loss of the E-step = (1 - w) gold + w pseudo."""
    gnn_ratio: NonNegative = 1.0
    """Pseudo-labelled nodes in the M-step, per train node."""
    gnn_weight: Fraction = 0.05
    """Loss of the M-step = (1 - w) gold + w pseudo."""
    confident: Fraction = 1.0
    """Share of the pseudo-labelled nodes kept, the most confident first."""
    restart: bool = True
    """Start every E-step from the pre-trained encoder, not from the last one."""


class JointConfig(Settings):
    """Joint training of encoder and GNN on sampled subgraphs: methods 'joint-gas' and 'joint-sage'."""

    batch_nodes: Count = 32
    """|B|: nodes per step; all are train nodes for SAGE, the loss counts those among them for GAS."""
    part_nodes: Count = 8
    """GAS: nodes per METIS part, about. A batch joins random parts, so that it does not hold one class alone."""
    fanout: Count = 4
    """SAGE: neighbours sampled per node and layer."""
    epochs: Count = 3
    """Passes over the train nodes (SAGE) or over all parts (GAS)."""
    max_neighbors: Annotated[int, Field(ge=0)] = 256
    """GAS: neighbours outside the part that are encoded anew; the others come from the history."""
    chunk_nodes: Count | None = 64
    """Nodes encoded at a time. Activations of more than one chunk are computed again in the backward pass, so that
    memory follows the chunk and not |G(B)|, for a third more time; None encodes all at once."""
    gnn_lr: Positive | None = None
    """Peak learning rate of the GNN; None takes that of psi, `train.psi_lr`."""
    gnn_epochs: Annotated[int, Field(ge=0)] = 0
    """Further epochs of the GNN alone, on the same samples, with the encoder fixed; for `gnn` 'joint'."""
    gnn: Literal["joint", "fresh"] = "joint"
    """What predicts: the GNN trained together with the encoder, or a new one on its features, as for other methods."""


class Config(Settings):
    """Everything a run needs."""

    data: str = "planted"
    """A folder of tables, a saved graph, or a name from `labeldeconv list`."""
    method: str = "ld"
    """One of `labeldeconv list`; 'auto', which `fit` takes where none is named, tries several: hop heads, or
    one that is clearly better."""
    setting: Literal["transductive", "inductive"] = "transductive"
    """'inductive' hides texts, edges and labels of validation and test nodes from all training."""
    seed: Seed = 0
    """Seed of everything random in the run."""
    data_seed: Seed = 0
    """Seed of a generated graph, or of the split made where the data has none."""
    split: Annotated[list[Share], Field(min_length=2, max_length=2)] | None = None
    """Shares of train and validation nodes, the rest is test: a new split, class by class, instead of the data's own.
    [0.08, 0.02] is the low-label setting of ogbn-products."""
    metric: MetricName | None = None
    """The score on validation nodes by which epochs, methods ('auto') and GNNs ('auto') are chosen, and which result,
    tables and report name; None: accuracy, for multi-label tasks roc-auc (those have no accuracy), and r2 where labels
    are numbers, which take r2, mae and rmse."""
    class_weights: Literal["none", "balanced"] | Annotated[list[Positive], Field(min_length=1)] = "none"
    """Weights of the classes in the loss of GNNs and of encoders that learn true labels (FNE, GLEM, joint training):
    'balanced' is n / (c n_k) of the n_k train nodes of class k; or c weights, of which the ratios count. Multi-label:
    weights of the positives, 'balanced' is negatives / positives of every label."""
    regression_loss: RegressionLoss = "mse"
    """The loss of encoders and GNNs where labels are numbers, standardised by mean and standard deviation of the train
    nodes: the squared error, or Huber's, which is linear beyond one standard deviation and so minds outliers less."""
    device: str = "auto"
    """'cpu', 'cuda', ...; 'auto' takes a GPU where there is one."""
    start: str | None = None
    """A run directory whose encoder, and GNN as far as shapes fit, this run starts from (`fit --continue`)."""
    log: Annotated[Literal["none", "tensorboard", "wandb", "mlflow"], Field(json_schema_extra=UNKEYED)] = "none"
    """Where metrics go besides the run directory (extras of these names). Does not change results."""
    max_memory: Annotated[str | None, Field(json_schema_extra=UNKEYED)] = None
    """Memory that a run may take, such as '2GiB': stages work in smaller blocks or are refused before they start
    (docs/trust.md); None takes what there is. Does not change results."""
    encoder: EncoderConfig = EncoderConfig()
    labels: LabelConfig = LabelConfig()
    train: TrainConfig = TrainConfig()
    gnn: GNNConfig = GNNConfig()
    giant: GiantConfig = GiantConfig()
    glem: GlemConfig = GlemConfig()
    joint: JointConfig = JointConfig()

    def to_toml(self) -> str:
        """The settings as TOML; None values are left out, since TOML has none."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))
