"""A device program as one jitted SPMD function over a JAX mesh."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from meshwright.errors import MeshError
from meshwright.jax_private import move_words
from meshwright.machine import Mesh
from meshwright.partitioner.lower import Lowered
from meshwright.partitioner.propagate.sub_axes import whole_axes
from meshwright.program.analysis.python_calls import python_calls
from meshwright.program.ir import Sharding
from meshwright.run.local.devices import find_devices
from meshwright.run.local.execute import run_program
from meshwright.run.local.layer_stack import whole_array


def jax_mesh(mesh: Mesh) -> jax.sharding.Mesh:
    """The JAX mesh over devices of all processes; `MeshError` if they are too few.

    A sequential axis (a loop in time) has no devices and is left out.
    """
    mesh = mesh.spatial
    devices: list[Any] = list(mesh.devices or find_devices())
    count = mesh.num_devices
    if len(devices) < count:
        raise MeshError(
            f"mesh {mesh} needs {count} devices, but JAX sees {len(devices)} "
            f"({devices[0].platform}); to try it on one machine, set XLA_FLAGS="
            f"--xla_force_host_platform_device_count={count} before JAX starts"
        )
    shape = tuple(size for _, size in mesh.sizes)
    grid = np.array(devices[:count], dtype=object).reshape(shape)
    return jax.sharding.Mesh(grid, mesh.axes, axis_types=(AxisType.Auto,) * len(shape))


def mesh_of_sub_axes(mesh: Any, sub_axes: Mesh) -> Any:
    """A JAX mesh whose axes are split into sub-axes; `mesh` may be abstract.

    sub_axes: the sub-axes with their sizes, such as `data:0` and `data:1` in place of
        `data`.
    """
    sizes = tuple(size for _, size in sub_axes.sizes)
    if mesh.axis_names == sub_axes.axes:
        return mesh
    types = (AxisType.Auto,) * len(sizes)
    if isinstance(mesh, jax.sharding.AbstractMesh):
        return jax.sharding.AbstractMesh(sizes, sub_axes.axes, axis_types=types)
    grid = mesh.devices.reshape(sizes)
    return jax.sharding.Mesh(grid, sub_axes.axes, axis_types=types)


def partition_spec(sharding: Sharding) -> PartitionSpec:
    """The `PartitionSpec` of a sharding that has no partial sums."""
    entries = [axes[0] if len(axes) == 1 else (axes or None) for axes in sharding.dims]
    while entries and entries[-1] is None:
        entries.pop()
    return PartitionSpec(*entries)


def named_shardings(
    mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh, shardings: Sequence[Sharding]
) -> tuple[NamedSharding, ...]:
    """JAX's `NamedSharding` of each sharding on a mesh."""
    return tuple(NamedSharding(mesh, partition_spec(s)) for s in shardings)


def spmd_function(
    lowered: Lowered,
    mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh,
    weak: Collection[int] = (),
) -> Callable[..., tuple[Any, ...]]:
    """The device program as a function of flat global arrays over a mesh.

    weak: positions of the outputs that are weakly typed, as in the original function.
    """

    def on_device(*inputs: Any) -> tuple[Any, ...]:
        return tuple(run_program(lowered.program, inputs))

    mapped = jax.shard_map(
        on_device,
        mesh=mesh,
        in_specs=tuple(partition_spec(s) for s in lowered.inputs),
        out_specs=tuple(partition_spec(s) for s in lowered.outputs),
        check_vma=False,
    )

    def device_step(*inputs: Any) -> tuple[Any, ...]:
        results = mapped(*inputs)
        return tuple(weaken(r) if i in weak else r for i, r in enumerate(results))

    return device_step


def weaken(value: Any) -> Any:
    """Mark a value as weakly typed, as JAX types Python numbers, without conversion."""
    params = {"new_dtype": value.dtype, "weak_type": True, "sharding": None}
    return lax.convert_element_type_p.bind(value, **params)


@dataclass(frozen=True, eq=False)
class Executable:
    """A device program, jitted over a JAX mesh.

    jitted: function from flat global arrays, sharded as `in_shardings`, to a tuple of
    flat global arrays.
    """

    jitted: Any
    mesh: jax.sharding.Mesh
    in_shardings: tuple[NamedSharding, ...]

    def __call__(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """Run the program on arrays in any sharding, under any mesh of the caller."""
        return self.run(self.place(leaves))

    def place(self, leaves: Sequence[Any]) -> list[Any]:
        """Move arrays to the shardings of the program's inputs.

        Arrays that have these shardings already are not copied.
        """
        pairs = zip(leaves, self.in_shardings, strict=True)
        return [place(leaf, sharding) for leaf, sharding in pairs]

    def run(self, placed: Sequence[Any]) -> tuple[Any, ...]:
        """Run the program on arrays that `place` has moved."""
        if jax.sharding.get_abstract_mesh().empty:
            return self.jitted(*placed)
        with jax.set_mesh(self.mesh):
            return self.jitted(*placed)


def make_executable(
    lowered: Lowered,
    donated: Sequence[int] = (),
    user_mesh: Mesh | None = None,
    weak: Collection[int] = (),
) -> Executable:
    """The device program as one jitted SPMD function; the mesh's devices must be present.

    user_mesh: the mesh before its axes were split into sub-axes; arrays that use whole
        axes only are sharded over it, except those of a program that calls Python.
    weak: as in `spmd_function`.
    """
    outer = jax_mesh(user_mesh or lowered.mesh)
    mesh = jax_mesh(lowered.mesh)
    if python_calls(lowered.program):
        outer = mesh  # JAX then requires one mesh for all of the program
    in_shardings = tuple(outermost_sharding(s, outer, mesh) for s in lowered.inputs)
    jitted = jax.jit(
        spmd_function(lowered, mesh, weak),
        in_shardings=in_shardings,
        out_shardings=tuple(
            outermost_sharding(s, outer, mesh) for s in lowered.outputs
        ),
        donate_argnums=tuple(donated),
    )
    return Executable(jitted, mesh, in_shardings)


def outermost_sharding(
    sharding: Sharding, outer: jax.sharding.Mesh, inner: jax.sharding.Mesh
) -> NamedSharding:
    """A sharding over the user's mesh if it uses only whole axes, else over sub-axes."""
    named = None if outer is inner else whole_axes(sharding, inner.axis_names)
    if named is None:
        return NamedSharding(inner, partition_spec(sharding))
    return NamedSharding(outer, partition_spec(named))


def place(leaf: Any, sharding: NamedSharding) -> Any:
    """Move an array of any sharding, a NumPy array or a scalar to a sharding.

    In a multi-process run, NumPy arrays and arrays of one process's devices must be equal
    on all processes.
    """
    if isinstance(leaf, Tracer):
        return leaf  # inside another transformation, which places it
    if isinstance(leaf, jax.Array):
        current, is_here = leaf.sharding, leaf.is_fully_addressable
        if current == sharding or current.is_equivalent_to(sharding, leaf.ndim):
            return leaf
        if not is_here and current.device_set == sharding.device_set:
            return jax.jit(lambda x: x, out_shardings=sharding)(leaf)
        if is_here and not sharding.is_fully_addressable:
            # `jax.device_put` takes neither PRNG keys nor arrays that are committed to a
            # device of this process.
            return move_words(lambda x: jax.device_put(np.asarray(x), sharding), leaf)
    return jax.device_put(whole_array(leaf), sharding)
