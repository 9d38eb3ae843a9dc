"""`hf:DIR_OR_NAME`: Hugging Face image classifiers, with their image processor's settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from relook.errors import MissingExtraError, RelookError
from relook.foundation.wording import first_line
from relook.io.files import read_json
from relook.io.fingerprint import fingerprint
from relook.models.base import InputSpec, Predictor
from relook.models.predictors import Channels, ModelOptions
from relook.models.weights import check_unpacked

FORM = "hf:DIR_OR_NAME"
_RESAMPLING = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # Pillow's numbers
_UNCROPPED = 384  # from this size on, ConvNeXt's processor does not crop


class Logits(nn.Module):
    """Returns only the logits of a transformers network."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Return logits `[n, class]`."""
        return cast(Tensor, self.network(pixel_values=images).logits)


def is_hf_network(module: nn.Module) -> bool:
    """Whether a module is an image classifier of transformers."""
    config = getattr(module, "config", None)
    return hasattr(module, "main_input_name") and hasattr(config, "num_labels")


def load_hf(rest: str, options: ModelOptions) -> Predictor:
    """Load a directory written by `save_pretrained`, or a network of the hub by its name.

    Size, crop, interpolation, mean and std are the image processor's unless the options override
    them. Code that comes with a network is not run; by default, transformers would ask on standard
    input.
    """
    options.refuse("hf:", "outputs", "pretrained")
    transformers = import_transformers()
    name = str(Path(rest).expanduser()) if Path(rest).expanduser().is_dir() else rest
    with _quiet(transformers, rest):
        config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=False)
        _refuse_kernels(config)
        _check_pickles(partial(transformers.utils.cached_file, name), config)
        network, found = transformers.AutoModelForImageClassification.from_pretrained(
            name, config=config, output_loading_info=True, trust_remote_code=False
        )
        processor = transformers.AutoImageProcessor.from_pretrained(name, trust_remote_code=False)
        settings = processor.to_dict()
    missing = sorted(found["missing_keys"])
    if missing:
        raise RelookError(
            f"hf:{rest}: expected the weights of an image classifier, but {len(missing)} are "
            f"missing ({missing[0]} …): choose a network that was trained to classify"
        )
    mean, std = options.normalisation(*normalisation(settings))
    return options.predictor(
        Logits(network),
        known=_input(settings, network.config),
        mean=mean,
        std=std,
        classes=int(network.config.num_labels),
        fingerprint=hf_fingerprint(network, mean, std),
    )


def hf_fingerprint(network: Any, mean: Channels | None, std: Channels | None) -> str:
    """Return a network's fingerprint, which includes its configuration."""
    return fingerprint("hf", network.config.to_json_string(), network.state_dict(), mean, std)


def _refuse_kernels(config: Any) -> None:
    """Raise if the configuration names a repository with compiled code for attention."""
    kernel = getattr(config, "_attn_implementation", None)
    if kernel is not None and "/" in str(kernel):
        raise RelookError(
            f"expected a network without third-party code, got the kernel {kernel!r:.60}: "
            'remove "attn_implementation" from its config.json'
        )


def _check_pickles(file_of: Callable[..., str | None], config: Any) -> None:
    """Check weights in other formats than safetensors before they are loaded."""
    find = partial(file_of, _raise_exceptions_for_missing_entries=False)
    named = getattr(config, "transformers_weights", None)
    safe = ("model.safetensors", "model.safetensors.index.json")
    if named is None and any(find(file) is not None for file in safe):
        return  # transformers prefers these
    files = {"pytorch_model.bin" if named is None else str(named)}
    index = find("pytorch_model.bin.index.json") if named is None else None
    if index is not None:
        content = read_json(index, what="an index of weights")
        parts = content.get("weight_map") if isinstance(content, dict) else None
        files |= {str(part) for part in parts.values()} if isinstance(parts, dict) else set()
    for path in map(find, sorted(files)):
        if path is not None and not path.endswith((".safetensors", ".json")):
            check_unpacked(Path(path))


def import_transformers() -> Any:
    """Return transformers, or raise an error that says how to install it."""
    try:
        import transformers
    except ImportError as error:
        if error.name != "transformers":
            raise RelookError(f"importing transformers failed: {first_line(error)}") from error
        raise MissingExtraError("transformers", "hf", "hf:DIR_OR_NAME") from None
    return transformers


@contextmanager
def _quiet(transformers: Any, name: str) -> Iterator[None]:
    """Hide progress bars and hints, and turn any exception into an error of one line."""
    logging = transformers.utils.logging
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with torch.random.fork_rng(devices=()):
            yield
    except RelookError as error:
        raise RelookError(f"hf:{name}: {error}") from None
    except Exception as error:  # the hub, files and networks fail in many ways
        raise RelookError(
            f"hf:{name}: loading failed: {type(error).__name__}: {first_line(error)}"
        ) from error
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()


def normalisation(settings: Mapping[str, Any]) -> tuple[Channels, Channels]:
    """Return mean and std on the scale 0…1, converted from the processor's scale."""
    factor = settings.get("rescale_factor") or 1 / 255
    scale = 255 * factor if settings.get("do_rescale", True) else 255.0
    offset = 1.0 if settings.get("rescale_offset") else 0.0
    normalised = settings.get("do_normalize", True)
    mean = settings.get("image_mean") if normalised else None
    std = settings.get("image_std") if normalised else None
    means = tuple((value + offset) / scale for value in mean or (0.0,))
    stds = tuple(value / scale for value in std or (1.0,))
    return (means if mean else means[0]), (stds if std else stds[0])


def _input(settings: Mapping[str, Any], config: Any) -> InputSpec | None:
    """Return the input spec by the processor's size, or else by the network's."""
    channels = getattr(config, "num_channels", None)
    resample = int(settings.get("resample") or 0)
    how = _RESAMPLING[resample] if settings.get("resample") is not None else "bicubic"
    size = settings.get("size") or {}
    edge = size.get("shortest_edge")
    if settings.get("do_center_crop") and settings.get("crop_size"):
        cut = settings["crop_size"]
        whole = edge or size.get("height") or cut["height"]
        share = min(1.0, cut["height"] / whole)
        return InputSpec((cut["height"], cut["width"]), share, how, channels)
    if edge:
        share = settings.get("crop_pct") or 1.0
        return InputSpec((edge, edge), share if edge < _UNCROPPED else 1.0, how, channels)
    if size.get("height") and size.get("width"):
        return InputSpec((size["height"], size["width"]), 1.0, how, channels)
    side = getattr(config, "image_size", None)
    return InputSpec((side, side), 1.0, how, channels) if isinstance(side, int) else None
