"""Access to what is private in JAX, or differs between its releases.

The module is tested with jax 0.10.0 and 0.12.0.1.
"""

import importlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxlib.version import __version__ as jaxlib_version

_MISCOMPILES_UPDATES = tuple(map(int, jaxlib_version.split(".")[:2])) < (0, 12)


def open_jaxpr(jaxpr: Any) -> tuple[Any, list[Any]]:
    """The jaxpr and the list of its constants, for a `Jaxpr` of any release.

    Older releases wrap a `Jaxpr` and its constants in a `ClosedJaxpr`; newer ones have
    one class for both, whose `.jaxpr` is the object itself.
    """
    return getattr(jaxpr, "jaxpr", jaxpr), list(getattr(jaxpr, "consts", ()))


def name_arguments(flat: Any, fn: Any, paths: Sequence[str]) -> None:
    """Make JAX's messages about `flat` name the function `fn`, and arguments by paths.

    A message says, say, that a shape depends on the value of the argument `config.n`.
    """
    known = jax.api_util.debug_info("jit", fn, paths, {})
    flat.__fun_debug_info__ = known._replace(arg_names=tuple(paths))


def expanded(eqn: Any) -> Any:
    """The jaxpr to which a hijax primitive lowers; None for all other primitives.

    JAX traces `jnp.searchsorted` and `jnp.nonzero` to hijax primitives.
    """
    if eqn.primitive.name != "call_hi_primitive":
        return None
    stands_for = partial(eqn.primitive.to_lojax, **eqn.params)
    return jax.make_jaxpr(stands_for)(*(v.aval for v in eqn.invars))


def scan_counts(params: Any) -> tuple[int, int]:
    """The numbers of a scan's constant operands and of its carries."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()
    return len(list(consts)), len(list(carry))


def manual_axes(params: Any) -> frozenset[str]:
    """The axes over which a `shard_map` is manual, from its parameters."""
    key = "newly_manual_axes" if "newly_manual_axes" in params else "manual_axes"
    return frozenset(params[key])


def jit_options(fn: Any, which: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The positions and names of the "static" or "donate" arguments of a jitted function.

    which: "static" or "donate".
    Both tuples are empty for a function that `jax.jit` did not make.
    """
    options = getattr(fn, "_jit_info", None)
    numbers = getattr(options, f"{which}_argnums", None)
    names = getattr(options, f"{which}_argnames", None)
    return tuple(numbers or ()), tuple(names or ())


def is_ordered(effect: Any) -> bool:
    """True if JAX guarantees the order of this effect."""
    return (
        "Ordered" in type(effect).__name__
        or "ordered" in str(effect).lower().split("un")[0]
    )


def settle_slice(part: Any) -> Any:
    """The slice `part` of a whole array, behind a barrier if XLA would fuse it wrongly.

    Before jaxlib 0.12, XLA for CPUs fuses a slice with an update in place of it, and
    then writes the new elements to wrong places (jaxlib 0.9.2 to 0.11.2).
    """
    if not _MISCOMPILES_UPDATES or is_key(part.dtype):
        return part
    return jax.lax.optimization_barrier(part)


def is_key(dtype: Any) -> bool:
    """True if the dtype is that of typed PRNG keys."""
    return jnp.issubdtype(dtype, jax.dtypes.prng_key)


def tracing_config() -> tuple[Any, ...]:
    """The part of JAX's configuration on which a trace depends, as a hashable tuple."""
    from jax._src import config

    return config.trace_context()


def _xla() -> tuple[Any, Any]:
    """The module of jaxlib with the HLO parser, and `_jax`, one before jaxlib 0.11."""
    lib: Any = importlib.import_module("jax._src.lib")
    return getattr(lib.xla_client, "hlo", lib._jax), lib._jax


def hlo_flops(text: str) -> float:
    """The FLOPs that XLA counts in a module of HLO text; a loop's body counts once."""
    parser, library = _xla()
    module = parser.hlo_module_from_text(text)
    client: Any = jax.devices("cpu")[0].client
    # XLA reports no "flops" entry for a module that only moves data.
    return float(library.hlo_module_cost_analysis(client, module).get("flops", 0.0))


class HloProgram:
    """A module of HLO text, compiled for one device."""

    def __init__(self, text: str, device: Any) -> None:
        parser, library = _xla()
        module = parser.hlo_module_from_text(text)
        computation = parser.XlaComputation(module.as_serialized_hlo_module_proto())
        mlir = library.mlir.xla_computation_to_mlir_module(computation)
        devices, options = library.DeviceList((device,)), library.CompileOptions()
        self._executable = device.client.compile_and_load(mlir, devices, options)

    def __call__(self, *args: Any) -> list[Any]:
        """The results, one array each."""
        results = self._executable.execute_sharded(list(args))
        return [shards[0] for shards in results.disassemble_into_single_device_arrays()]

    def optimized_text(self) -> str:
        """The module as XLA runs it."""
        return self._executable.hlo_modules()[0].to_string()


def unwrap_nnx_jit(fn: Any) -> Any:
    """The function that `flax.nnx.jit` was given; `None` for all other functions."""
    is_nnx = type(fn).__module__.startswith("flax.nnx.transforms")
    return getattr(fn, "fun", None) if is_nnx else None


def process_group() -> tuple[Any, int, int] | None:
    """The key-value store of `jax.distributed`, this process's number, and their count.

    `None` for a process on its own. Unlike `jax.process_index`, this starts no backend.
    """
    if not jax.distributed.is_initialized():
        return None
    state = importlib.import_module("jax._src.distributed").global_state
    count = int(state.num_processes or 1)
    return None if count == 1 else (state.client, int(state.process_id or 0), count)
