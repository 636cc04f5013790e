"""Access to JAX functions and attributes that are private or differ between releases.

The module is tested with jax 0.10.0 and 0.12.0.1.
"""

import importlib
from collections.abc import Callable, Sequence
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
    """Make JAX's error messages about `flat` name the original function and its arguments.

    flat: a function of flattened leaves that stands for `fn`.
    paths: the path of each leaf, such as `config.n`, by which a message then names it.
    """
    known = jax.api_util.debug_info("jit", fn, paths, {})
    flat.__fun_debug_info__ = known._replace(arg_names=tuple(paths))


def expanded(eqn: Any) -> Any:
    """The jaxpr to which an equation's hijax primitive lowers.

    None for any other primitive. JAX traces `jnp.searchsorted` and `jnp.nonzero` to hijax
    primitives, which JAX expands to ordinary primitives only later.
    """
    if eqn.primitive.name != "call_hi_primitive":
        return None
    stands_for = partial(eqn.primitive.to_lojax, **eqn.params)
    return jax.make_jaxpr(stands_for)(*(v.aval for v in eqn.invars))


def scan_counts(params: Any) -> tuple[int, int]:
    """The number of constant operands and the number of carries of a `scan` equation."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()
    return len(list(consts)), len(list(carry))


def manual_axes(params: Any) -> frozenset[str]:
    """The mesh axes over which a `shard_map` equation is manual, from its parameters."""
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
    """Whether JAX keeps operations with this effect in program order (ordered effects)."""
    return (
        "Ordered" in type(effect).__name__
        or "ordered" in str(effect).lower().split("un")[0]
    )


def settle_slice(part: Any) -> Any:
    """The slice `part` of a whole array, behind an optimization barrier if XLA needs one.

    XLA for CPUs before jaxlib 0.12 (tested: 0.9.2 to 0.11.2) fuses a slice with an in-place
    update of the same array, and then writes the new elements to wrong positions.
    """
    if not _MISCOMPILES_UPDATES or is_key(part.dtype):
        return part
    return jax.lax.optimization_barrier(part)


def is_key(dtype: Any) -> bool:
    """Whether the dtype is that of typed PRNG keys."""
    return jnp.issubdtype(dtype, jax.dtypes.prng_key)


def move_words(move: Callable[[Any], Any], x: Any) -> Any:
    """The result of `move`, which only moves data; typed PRNG keys move as integers."""
    if not is_key(x.dtype):
        return move(x)
    words = move(jax.random.key_data(x))
    return jax.random.wrap_key_data(words, impl=jax.random.key_impl(x))


def tracing_config() -> tuple[Any, ...]:
    """The part of JAX's configuration on which a trace depends, as a hashable tuple."""
    from jax._src import config

    return config.trace_context()


def _xla() -> tuple[Any, Any]:
    """The jaxlib module that contains the HLO parser, and the module `_jax`.

    The two are the same module before jaxlib 0.11.
    """
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
        """Run the program on its device, and return one array for each result."""
        results = self._executable.execute_sharded(list(args))
        return [shards[0] for shards in results.disassemble_into_single_device_arrays()]

    def optimized_text(self) -> str:
        """The HLO text after XLA's optimization passes, as it runs."""
        return self._executable.hlo_modules()[0].to_string()


def unwrap_nnx_jit(fn: Any) -> Any:
    """The Python function inside a `flax.nnx.jit` function; `None` for others."""
    is_nnx = type(fn).__module__.startswith("flax.nnx.transforms")
    return getattr(fn, "fun", None) if is_nnx else None


def process_group() -> tuple[Any, int, int] | None:
    """The key-value store of `jax.distributed`, this process's index, and the count.

    The count is the number of processes. The result is `None` if `jax.distributed` is not
    initialized or has only this process. Unlike `jax.process_index`, this starts no
    backend.
    """
    if not jax.distributed.is_initialized():
        return None
    state = importlib.import_module("jax._src.distributed").global_state
    count = int(state.num_processes or 1)
    return None if count == 1 else (state.client, int(state.process_id or 0), count)
