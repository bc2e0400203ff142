"""Every family of encoders that users bring, with tiny random weights, saved as a folder as the hub has them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from labeldeconv.encoders.trunk import layers_of
from labeldeconv.testing import encoded

RESIDUES = "ALGVSREDTIPKFQNYMHWCXBOUZ"  # in ProtT5's order
SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 130,
    "initializer_range": 0.2,  # hidden states that differ between texts, as those of trained weights do
}
ROTARY = {"rope_theta": 10000.0, "rope_type": "default"}
T5 = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0}


def byte_tokenizer(special: list[str], template: str, **names: str) -> Any:
    """A byte-level BPE tokenizer without merges; `special` tokens come first, `template` places them around a text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*special, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    placed = [(token, vocabulary[token]) for token in special if token in template.split()]
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=placed)
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=128, **names)


def bert_tokenizer() -> Any:
    """[CLS] text [SEP], as BERT, DeBERTa, ModernBERT, e5, bge, gte and nomic have it."""
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return byte_tokenizer([*names.values(), "[MASK]"], "[CLS] $A [SEP]", mask_token="[MASK]", **names)


def roberta_tokenizer() -> Any:
    """<s> text </s>, as RoBERTa and XLM-R have it; padding is token 1."""
    names = {"cls_token": "<s>", "pad_token": "<pad>", "sep_token": "</s>", "unk_token": "<unk>"}
    return byte_tokenizer([*names.values(), "<mask>"], "<s> $A </s>", mask_token="<mask>", **names)


def decoder_tokenizer() -> Any:
    """Text <|end|>, and no token for padding, as language models have it."""
    return byte_tokenizer(["<|end|>"], "$A <|end|>", eos_token="<|end|>")


def gemma_tokenizer() -> Any:
    """<bos> text <eos>."""
    names = {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>", "unk_token": "<unk>"}
    return byte_tokenizer(list(names.values()), "<bos> $A <eos>", **names)


def sentence_piece_tokenizer(pieces: list[str]) -> Any:
    """T5's kind: a unigram model over pieces that carry their blank, text </s>."""
    vocabulary = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((piece, -2.0) for piece in pieces)]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=2))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=128, **names)


def t5_tokenizer() -> Any:
    """Letters as pieces."""
    return sentence_piece_tokenizer(["▁", *map(chr, range(33, 127)), "▁a", "▁the", "graph", "label"])


def prot_t5_tokenizer() -> Any:
    """ProtT5's vocabulary: every residue is a word of its own, and 100 sentinels follow."""
    return sentence_piece_tokenizer([*(f"▁{letter}" for letter in RESIDUES), *(f"<extra_id_{k}>" for k in range(100))])


def esm_tokenizer(folder: Path) -> Any:
    """ESM2's own."""
    vocabulary = ["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<null_1>", "<mask>"]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    return hf.EsmTokenizer(str(folder / "vocab.txt"))


def _text(kind: Any, config: Any, tokenizer: Callable[[], Any], **own: Any) -> Callable[[Path], None]:
    def save(folder: Path) -> None:
        made = tokenizer()
        kind(config(vocab_size=len(made), **SMALL, **own)).save_pretrained(folder)
        made.save_pretrained(folder)

    return save


def _t5(config: Any, kind: Any, tokenizer: Callable[[], Any], **own: Any) -> Callable[[Path], None]:
    def save(folder: Path) -> None:
        made = tokenizer()
        kind(config(vocab_size=len(made), pad_token_id=0, eos_token_id=1, **T5, **own)).save_pretrained(folder)
        made.save_pretrained(folder)

    return save


def _esm(folder: Path) -> None:
    settings = {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32, "token_dropout": True}
    hf.EsmForMaskedLM(hf.EsmConfig(position_embedding_type="rotary", **settings, **SMALL)).save_pretrained(folder)
    esm_tokenizer(folder).save_pretrained(folder)


def _esmc(folder: Path) -> None:
    hf.EsmcForMaskedLM(hf.EsmcConfig(**SMALL)).save_pretrained(folder)
    hf.EsmcTokenizer().save_pretrained(folder)


DEBERTA = {"relative_attention": True, "type_vocab_size": 0, "position_biased_input": False, "pad_token_id": 0}
DECODER = {"num_key_value_heads": 1, "head_dim": 16}
ROBERTA = {"pad_token_id": 1, "type_vocab_size": 1}
FAMILIES: dict[str, Callable[[Path], None]] = {
    "bert": _text(hf.BertForMaskedLM, hf.BertConfig, bert_tokenizer),  # e5, bge, MiniLM too; no pooler in its file
    "roberta": _text(hf.RobertaModel, hf.RobertaConfig, roberta_tokenizer, **ROBERTA),
    "xlm-roberta": _text(hf.XLMRobertaModel, hf.XLMRobertaConfig, roberta_tokenizer, **ROBERTA),  # bge-m3
    "mpnet": _text(hf.MPNetModel, hf.MPNetConfig, roberta_tokenizer, pad_token_id=1),
    "distilbert": _text(hf.DistilBertModel, hf.DistilBertConfig, bert_tokenizer),
    "deberta": _text(hf.DebertaModel, hf.DebertaConfig, bert_tokenizer, pos_att_type="c2p|p2c", **DEBERTA),
    "deberta-v2": _text(hf.DebertaV2Model, hf.DebertaV2Config, bert_tokenizer, pos_att_type="c2p|p2c", **DEBERTA),
    "deberta-v3": _text(
        hf.DebertaV2Model, hf.DebertaV2Config, bert_tokenizer, pos_att_type="p2c|c2p", share_att_key=True,
        position_buckets=16, norm_rel_ebd="layer_norm", **DEBERTA,
    ),
    "modernbert": _text(hf.ModernBertModel, hf.ModernBertConfig, bert_tokenizer, pad_token_id=0, cls_token_id=2,
                        sep_token_id=3, bos_token_id=2, eos_token_id=3),
    "gte": _text(hf.GteModel, hf.GteConfig, bert_tokenizer, pad_token_id=0),
    "nomic": _text(hf.NomicBertModel, hf.NomicBertConfig, bert_tokenizer, pad_token_id=0),
    "qwen3": _text(hf.Qwen3ForCausalLM, hf.Qwen3Config, decoder_tokenizer, **DECODER, eos_token_id=0),
    "gemma3": _text(hf.Gemma3TextModel, hf.Gemma3TextConfig, gemma_tokenizer, **DECODER, sliding_window=8,
                    use_bidirectional_attention=True, pad_token_id=0, eos_token_id=1, bos_token_id=2),
    "t5": _t5(hf.T5Config, hf.T5ForConditionalGeneration, t5_tokenizer, feed_forward_proj="gated-gelu"),
    "mt5": _t5(hf.MT5Config, hf.MT5EncoderModel, t5_tokenizer),
    "prot-t5": _t5(hf.T5Config, hf.T5EncoderModel, prot_t5_tokenizer),
    "esm2": _esm,
    "esmc": _esmc,
}  # fmt: skip
PROTEINS = ("prot-t5", "esm2", "esmc")
SHARE_MORE = ("t5", "mt5", "prot-t5")  # a layer gives its position bias to the next one
SPLIT = [name for name in FAMILIES if name not in SHARE_MORE]  # into a frozen trunk and trained layers
NORMS_BEHIND = ("final_norm.weight", "emb_layer_norm_after.weight", "emb_layer_norm_after.bias", "model.norm.weight")
TEXTS = ["a graph", "label deconvolution of nodes", "büßt 日本", "the label of a text that is longer than the others"]
SEQUENCES = ["MKVLAAGW", "acd", "MJ*K", "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQ"]


def save_family(name: str, folder: Path) -> Path:
    """Write the family's tiny model and tokenizer into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        FAMILIES[name](folder)
    return folder


def frozen_in_place(encoder, train_layers):
    """Only the last layers, and norms behind them, train and have dropout: the whole model runs in every step."""
    layers = layers_of(encoder)
    kept = {id(p) for layer in layers[len(layers) - train_layers :] for p in layer.parameters()}
    for name, parameter in encoder.named_parameters():
        parameter.requires_grad_(id(parameter) in kept or name.endswith(NORMS_BEHIND))
    encoder.eval()
    for layer in layers[len(layers) - train_layers :]:
        layer.train()
    return encoder


def encode(encoder: Any, texts: list[str], **options: Any) -> torch.Tensor:
    """Features (n, d) of texts, in evaluation mode."""
    return encoded(encoder.eval(), texts, **options)
