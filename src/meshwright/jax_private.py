"""Access to JAX functions and attributes that are private or differ between releases.

The module is tested with jax 0.10.0 and 0.12.0.1.
"""

import importlib
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax._src.source_info_util import Transform
from jax.extend.core import Primitive
from jax.interpreters import mlir
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


_SPARSE = ("bcoo", "bcsr", "coo", "csr")
"""The formats of `jax.experimental.sparse`, with which its primitives' names begin."""


def sparse_implementation(eqn: Any) -> Any:
    """The jaxpr of ordinary primitives that implements one of `jax.experimental.sparse`.

    None for any other primitive.
    """
    name = eqn.primitive.name
    kind = name.split("_")[0]
    if kind not in _SPARSE:
        return None
    module = importlib.import_module(f"jax.experimental.sparse.{kind}")
    implementation = getattr(module, f"_{name}_impl", None)
    if implementation is None:
        return None
    stands_for = partial(implementation, **eqn.params)
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


def is_backward(eqn: Any) -> bool:
    """Whether JAX made an equation by transposing a linear function.

    The equations of a backward pass are made so. JAX notes the transformation in the
    equation's name stack, between the names that the user gives.
    """
    stack = eqn.source_info.name_stack.stack
    return any(isinstance(e, Transform) and e.name == "transpose" for e in stack)


def is_recomputed(eqn: Any) -> bool:
    """Whether an equation computes a value again that `jax.checkpoint` did not keep.

    JAX notes this in the equation's name stack, too.
    """
    names = (entry.name for entry in eqn.source_info.name_stack.stack)
    return "rematted_computation" in names


def scope_names(name_stack: Any) -> tuple[str, ...]:
    """The user's names in a name stack, without JAX's transformations and lambdas."""
    names = (e.name for e in name_stack.stack if not isinstance(e, Transform))
    return tuple(name for name in names if "<" not in name)


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


# -- cuDNN's fused attention ------------------------------------------------------------

_CUDNN = "jax._src.cudnn.fused_attention_stablehlo"

_CUDNN_VERSION = 91300
"""The version of cuDNN that is answered for a machine that is not there: the newest one
for which JAX's functions ask."""

_HOPPER = (9, 0)
"""The compute capability of H100, the oldest GPU with all that cuDNN's attention has."""

_gpu: ContextVar[tuple[int, int] | None] = ContextVar("_gpu", default=None)
_gpu_lock = threading.Lock()
_gpu_originals: dict[str, Any] = {}
_gpu_users = [0]


@contextmanager
def gpu_for_cudnn(capability: tuple[int, int] = _HOPPER) -> Generator[None]:
    """Within this context, JAX's checks for cuDNN find a GPU, whatever this host has.

    `jax.nn.dot_product_attention(implementation="cudnn")` can then be traced anywhere.
    Only this thread is answered so, and JAX's own functions are restored at the end.
    capability: CUDA's compute capability of the planned GPU, major and minor.
    """
    module = importlib.import_module(_CUDNN)
    with _gpu_lock:
        if not _gpu_users[0]:
            for name, answer in _ANSWERS.items():
                _gpu_originals[name] = getattr(module, name)
                setattr(module, name, partial(_answered, name, answer))
        _gpu_users[0] += 1
    token = _gpu.set(capability)
    try:
        yield
    finally:
        _gpu.reset(token)
        with _gpu_lock:
            _gpu_users[0] -= 1
            if not _gpu_users[0]:
                for name, original in _gpu_originals.items():
                    setattr(module, name, original)


def _answered(name: str, answer: Callable[..., Any], *args: Any) -> Any:
    """The answer for the planned GPU in threads that plan, JAX's own in all others."""
    capability = _gpu.get()
    if capability is None:
        return _gpu_originals[name](*args)
    return answer(capability, *args)


def _capability(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


_ANSWERS: dict[str, Callable[..., Any]] = {
    "check_cudnn_version": lambda current: _CUDNN_VERSION,
    "check_compute_capability": lambda current, least: current >= _capability(least),
    "is_cuda_compute_capability_equal": lambda current, one: (
        current == _capability(one)
    ),
}
"""JAX's functions that look at this host's GPU, and their answers for another one."""


@cache
def attention_primitive(direction: str, plain: Callable[..., Any]) -> Any:
    """A primitive for cuDNN's attention on one device, of any platform.

    On CUDA it is lowered to cuDNN's custom call, on CPU to `plain`; so is from now on the
    primitive of JAX, which has no lowering for CPU. Other than JAX's, it can be lowered for
    devices that are not there.
    direction: "fwd" or "bwd".
    plain: a function with the parameters of JAX's primitive, which returns a list.
    """
    module = importlib.import_module(_CUDNN)
    name = f"_dot_product_attention_{direction}"
    primitive = Primitive(f"local{name}")
    primitive.multiple_results = True
    primitive.def_abstract_eval(getattr(module, f"{name}_abstract"))
    on_cuda = getattr(module, f"{name}_cuda_lowering")
    on_cpu = mlir.lower_fun(plain, multiple_results=True)
    mlir.register_lowering(primitive, on_cuda, platform="cuda")
    for each in (primitive, getattr(module, f"{name}_p")):
        mlir.register_lowering(each, on_cpu, platform="cpu")
    return primitive
