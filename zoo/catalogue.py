"""Every program of the zoo, in the order in which its table lists them."""

from importlib import import_module

from zoo.workload import Workload

MODULES = (
    "gpt", "gpt3", "llm", "primer", "moe", "t5", "serving", "resnet", "efficientnet",
    "vit", "mixer", "unet", "unet3d", "sngan", "gns", "d4pg", "lstm", "multimodal",
    "wavenet", "parallel_wavenet", "ranking",
)  # fmt: skip

WORKLOADS: tuple[Workload, ...] = tuple(
    import_module(f"zoo.{name}").workload for name in MODULES
)
