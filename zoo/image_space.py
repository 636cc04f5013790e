"""A space of image classifiers for accelerators, as data for `meshwright nas search`.

Every line of a net's table of stages is chosen: fused or depthwise bottlenecks, kernel,
stride, expansion, channels, repeats, activation, and how pixels are rearranged (space to
depth, space to batch). So are the squeeze of squeeze and excitation, and the scales: width,
depth and image size. The choices are those of EfficientNet-X (Li et al., CVPR 2021);
EfficientNet, EfficientNet-X and EfficientNet-EdgeTPU are points, in `POINTS`.

    space = image_space(size=16, stages=nas.Repeat(stage_space(kernel=3), 1, 3))
    evaluate = nas.Trained(partial(build, classes=10), data, machine="tpu-v5e")

Any part can be replaced by name, also by a plain value.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from meshwright.codesign import nas
from zoo.efficientnet import EfficientNet
from zoo.efficientnet_sizes import SIZES, Config
from zoo.mbconv import SpaceToDepth, Stage

STAGE: Mapping[str, Any] = {
    "block": nas.Choice("depthwise", "fused"),
    "kernel": nas.Choice(3, 5, 7),
    "stride": nas.Choice(1, 2),
    "expand": nas.Choice(1, 2, 3, 4, 6, 8),
    "channels": nas.Range(8, 384, step=8),
    "repeats": nas.Range(1, 8),
    "activation": nas.Choice("relu", "silu"),
    "rearrange": nas.Choice("none", "to_depth", "to_batch"),
    "expand_from": nas.Choice("inputs", "channels"),
    "skip": nas.Choice(True, False),
}
"""Parts of a stage.

rearrange: "to_depth" stands for four times the channels on a quarter of the pixels, which
    begins here and ends in the next stage, of stride 2.
expand_from: the channels that `expand` multiplies in the first block, its own or those that
    come in.
skip: whether blocks add their input where shapes agree.
"""

IMAGE: Mapping[str, Any] = {
    "width": nas.Range(0.25, 4.0, log=True),
    "depth": nas.Range(0.25, 6.0, log=True),
    "size": nas.Range(8, 640),
    "stem": nas.Range(8, 64, step=8),
    "head": nas.Range(32, 2560, step=32),
    "activation": nas.Choice("relu", "silu"),
    "squeeze": nas.Choice(0.0, 0.25, 0.5, 1.0),
}
"""Parts of a net besides its stages; `activation` is that of the stem and the head."""


def stage_space(**parts: Any) -> nas.Space:
    """The space of a stage; `parts` replace those of `STAGE`."""
    return nas.Space({**STAGE, **parts})


def image_space(where: Iterable[Callable[[Any], bool]] = (), **parts: Any) -> nas.Space:
    """The space of nets; `parts` replace those of `IMAGE`, and `stages`.

    where: conditions besides that a net can be built.
    """
    stages = nas.Repeat(stage_space(), 1, 8)
    return nas.Space({**IMAGE, "stages": stages, **parts}, (can_be_built, *where))


def config_of(candidate: Mapping[str, Any], **training: Any) -> Config:
    """The net of a candidate; `ValueError` if it cannot be built.

    training: fields of `Config` that are not chosen, such as `classes` and `dropout`.
    """
    entries = candidate["stages"]
    inputs = [candidate["stem"], *(entry["channels"] for entry in entries)]
    before = ["none", *(entry["rearrange"] for entry in entries)]
    stages = tuple(map(_stage_of, entries, inputs, before))
    if entries and entries[-1]["rearrange"] == "to_depth":
        raise ValueError("space to depth ends in a stage of stride 2; none follows")
    _check_pixels(candidate["size"], stages)
    names = ("width", "depth", "size", "stem", "head", "activation", "squeeze")
    chosen = {name: candidate[name] for name in names}
    return Config(**{"dropout": 0.2, **training, **chosen, "stages": stages})


def _stage_of(entry: Mapping[str, Any], inputs: int, before: str) -> Stage:
    to_depth, ends = entry["rearrange"] == "to_depth", before == "to_depth"
    if to_depth and ends:
        raise ValueError(
            "space to depth ends in a stage of stride 2, which begins none"
        )
    place = SpaceToDepth.BEGINS if to_depth else SpaceToDepth.NONE
    return Stage(
        entry["repeats"], entry["kernel"], entry["stride"], entry["expand"], inputs,
        entry["channels"], entry["activation"], is_fused=entry["block"] == "fused",
        space_to_depth=SpaceToDepth.ENDS if ends else place,
        expanded=entry["channels"] if entry["expand_from"] == "channels" else 0,
        has_skip=entry["skip"], space_to_batch=entry["rearrange"] == "to_batch",
    )  # fmt: skip


def _check_pixels(size: int, stages: Iterable[Stage]) -> None:
    """Fail if a stage would see no pixels, or a part that does not come out even."""
    size = -(-size // 2)  # the stem has stride 2
    for stage in stages:
        halved = stage.stride == 2 or stage.space_to_depth is SpaceToDepth.BEGINS
        parts = 4 if halved else 2
        if stage.space_to_batch and size % parts:
            raise ValueError(f"space to batch divides a side by {parts}; got {size}")
        if halved and stage.space_to_depth is not SpaceToDepth.ENDS:
            size = -(-size // 2)


def can_be_built(candidate: Mapping[str, Any]) -> bool:
    """Whether the stages of a candidate fit each other and the image."""
    try:
        config_of(candidate)
    except ValueError:
        return False
    return True


def build(candidate: Mapping[str, Any], **training: Any) -> EfficientNet:
    """The flax module of a candidate, as `nas.Trained` wants it; see `config_of`."""
    return EfficientNet(config_of(candidate, **training))


def candidate_of(config: Config) -> dict[str, Any]:
    """The candidate of a net; the inverse of `config_of`."""
    names = ("width", "depth", "size", "stem", "head", "activation", "squeeze")
    chosen = {name: getattr(config, name) for name in names}
    return {**chosen, "stages": [_entry_of(stage) for stage in config.stages]}


def _entry_of(stage: Stage) -> dict[str, Any]:
    to_depth = stage.space_to_depth is SpaceToDepth.BEGINS
    rearranged = "to_batch" if stage.space_to_batch else "none"
    return {
        "block": "fused" if stage.is_fused else "depthwise",
        "kernel": stage.kernel,
        "stride": stage.stride,
        "expand": stage.expand,
        "channels": stage.outputs,
        "repeats": stage.repeats,
        "activation": stage.activation,
        "rearrange": "to_depth" if to_depth else rearranged,
        "expand_from": "channels" if stage.expanded else "inputs",
        "skip": stage.has_skip,
    }


POINTS = {name: candidate_of(config) for name, config in SIZES.items()}
"""The published nets as candidates, by the names of `zoo.efficientnet_sizes`."""
