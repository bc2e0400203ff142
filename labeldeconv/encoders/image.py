"""Images through a vision model of transformers (ViT, DINOv2, ConvNeXT) by hub id or folder; extra 'images'.

The attribute is the path of the image, its tokens the bytes of that path: images are opened when a batch needs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from labeldeconv.encoders.base import Encoder, state_key
from labeldeconv.encoders.huggingface import VOLATILE, quiet_transformers, without_random_pooler
from labeldeconv.encoders.layers import keep_first_layers
from labeldeconv.errors import ConfigError, DataError, MissingExtra
from labeldeconv.settings.models import EncoderConfig
from labeldeconv.stages.files import checksum
from labeldeconv.stages.keys import digest


class ImageEncoder(Encoder):
    """A vision model with its image processor: the pooled output, or the mean over the last layer's tokens.

    Relative paths start at the working directory. A missing path gives zeros.
    """

    pad_id, vocab_size = 0, 256

    def __init__(self, model: nn.Module, processor: Any, config: EncoderConfig) -> None:
        super().__init__()
        if config.layers is not None:
            keep_first_layers(model, config.layers)
        self.model, self.processor = model, processor
        settings: Any = model.config
        self.dim = settings.hidden_size if hasattr(settings, "hidden_size") else settings.hidden_sizes[-1]

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Bytes of paths (b, t) and mask (b, t) to features (b, d)."""
        rows = zip(input_ids.tolist(), attention_mask.sum(1).tolist(), strict=True)
        paths = [bytes(row[:length]).decode("utf-8") for row, length in rows]
        given = [k for k, path in enumerate(paths) if path]
        out = torch.zeros(len(paths), self.dim, device=input_ids.device)
        if not given:
            return out
        images = [open_image(Path(paths[k])) for k in given]
        pixels = self.processor(images=images, return_tensors="pt")["pixel_values"].to(out)
        found = self.model(pixel_values=pixels)
        pooled = found.pooler_output if getattr(found, "pooler_output", None) is not None else None
        features = found.last_hidden_state.mean(1) if pooled is None else pooled.flatten(1)
        return out.to(features.dtype).index_copy(0, torch.tensor(given, device=out.device), features)

    def tokenize(self, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """The bytes of each path, never cut."""
        return [list(text.strip().encode("utf-8")) for text in texts]

    def weights_key(self) -> str:
        """Hash of the weights, the model's own settings and those of its image processor."""
        model: Any = self.model
        settings = {k: v for k, v in model.config.to_dict().items() if k not in VOLATILE}
        processing = self.processor.to_dict()
        return digest([str(sorted(settings.items())), str(sorted(processing.items())), state_key(model)])

    def files_key(self, texts: Iterable[str]) -> str | None:
        """Hash of the content of every image that is there."""
        paths = (Path(text.strip()) for text in texts)
        return digest([checksum(path) if path.is_file() else None for path in paths])

    def save(self, folder: Path) -> None:
        """Write a folder that transformers opens."""
        with quiet_transformers():
            self.model.save_pretrained(folder)  # type: ignore[operator]
            self.processor.save_pretrained(folder)

    def restore(self, folder: Path) -> None:
        """Take the weights that `save` wrote."""
        self.model = _open(str(folder))[0]


def load_image_encoder(config: EncoderConfig) -> ImageEncoder:
    """The vision model of a hub id or folder."""
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise MissingExtra("an image column", "images") from None
    if config.lora_rank:
        raise ConfigError("encoder.lora_rank: not for image columns")
    try:
        return ImageEncoder(*_open(config.name), config)
    except (OSError, ValueError, ImportError, SafetensorError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(
            f"encoder.name 'image:{config.name}': opens neither as folder nor as hub id: {reason}"
        ) from None


def open_image(path: Path) -> Any:
    """An image in RGB; an error that names the file if it cannot be opened."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (OSError, UnidentifiedImageError) as error:
        raise DataError(f"{path}: cannot be opened as an image: {error}") from None


def _open(source: str) -> tuple[Any, Any]:
    with quiet_transformers():
        from transformers import AutoImageProcessor, AutoModel

        processor = AutoImageProcessor.from_pretrained(source, trust_remote_code=False)
        loaded = AutoModel.from_pretrained(
            source, trust_remote_code=False, use_safetensors=True, output_loading_info=True
        )
        return without_random_pooler(*loaded).float(), processor
