"""Eight virtual devices and reproducible hypothesis, set before JAX is imported."""

import gc
import os

from hypothesis import HealthCheck, settings

os.environ.setdefault("JAX_PLATFORMS", "cpu")
_flags = os.environ.get("XLA_FLAGS", "")
if "xla_force_host_platform_device_count" not in _flags:
    # Most of the time goes into compiling; what is tested is not how well XLA does.
    os.environ["XLA_FLAGS"] = (
        f"{_flags} --xla_force_host_platform_device_count=8"
        " --xla_backend_optimization_level=0"
        " --xla_llvm_disable_expensive_passes=true"
    ).strip()

# Traced programs are many objects that live on: to look for cycles among them after every
# 700 new ones, as Python does, took a third of the time of the planner's tests.
gc.set_threshold(100_000, 20, 100)

# ci: the same cases every time. long: many, by `pytest --hypothesis-profile=long`, with
# `--hypothesis-seed` to make a run repeatable.
settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "long", settings.get_profile("ci"), derandomize=False, max_examples=1000
)
settings.load_profile("ci")
