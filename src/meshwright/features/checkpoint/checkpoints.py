"""`Checkpoints`: a directory of checkpoints, which one run writes and others read."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Self

import jax

from meshwright.errors import CheckpointError, MeshwrightWarning
from meshwright.features.checkpoint.directory import (
    Trash,
    local_directory,
    set_aside,
    step_folders,
)
from meshwright.features.checkpoint.orbax_import import import_orbax
from meshwright.features.checkpoint.plain_orbax import find_stored
from meshwright.features.checkpoint.process_group import make_group
from meshwright.features.checkpoint.records import Restored, Saved, Skipped
from meshwright.features.checkpoint.restoring import Damaged, newest_first, restore_step
from meshwright.features.checkpoint.retention import Retention
from meshwright.features.checkpoint.state_leaves import require_leaves
from meshwright.features.checkpoint.targets import restore_targets
from meshwright.features.checkpoint.writer_lock import acquire_lock, release_lock
from meshwright.features.checkpoint.writing import (
    PlanText,
    as_checkpoint_error,
    describe_save,
    open_manager,
    require_position,
    require_step,
    save_arguments,
)
from meshwright.run.local.layer_stack import whole_array


class Checkpoints:
    """The checkpoints of one directory, of which one process group writes and many read.

    A checkpoint is committed by Orbax with one rename of a directory, which a file system
    does wholly or not at all. The list of checkpoints is the list of these directories, so
    that list and arrays never disagree, and no index needs a transaction: a reader sees the
    last committed checkpoint while the next one is written, and after a crash only what was
    committed. For the same reason old checkpoints are renamed when a new one is committed,
    and deleted in the background of the next save. So while a run saves, there are up to
    two checkpoints more than the policy keeps: the new one, and one to delete.

    In several processes of `jax.distributed`, all call the same methods in the same order;
    they read and write their own parts, and all raise the same errors.
    """

    def __init__(  # noqa: PLR0913  the retention policy
        self,
        directory: str | PathLike[str],
        *,
        keep: int | None = 3,
        every: int | None = None,
        best: int = 0,
        metric: str = "loss",
        mode: str = "min",
        read_only: bool = False,
    ) -> None:
        """Open a directory of a file system that all processes share; it may be new.

        keep, every, best, metric, mode: the fields of `Retention`, which say what is
            kept.
        read_only: whether this process only reads, while another one may write.
            Otherwise this is the only writer until `close`, or until the process ends.
        Raises `CheckpointError` if the directory has another writer, naming it, or if
        Orbax is missing (`meshwright[checkpoint]`).
        """
        import_orbax()
        self.retention = Retention(keep, every, best, metric, mode)
        self.directory = local_directory(directory)
        self.read_only = read_only
        self._group = make_group()
        self._lock: int | None = None  # the descriptor of its file
        self._manager: Any = None
        self._trash = Trash(self.directory)
        self._saving: int | None = None
        if not read_only:
            self._open()

    # -- writing -----------------------------------------------------------------------

    def save(
        self,
        step: int,
        state: Any,
        *,
        plan: PlanText | str | None = None,
        position: Any = None,
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        """Begin to save a state; it may be changed or donated after this returns.

        state: any pytree of arrays, PRNG keys as well. plan: a plan, or its JSON.
        position: position in the training data, any JSON value. metrics: numbers by
            name.
        Arrays are written in the background. Raises `CheckpointError` if the step is
        saved already, or if the previous save failed.
        """
        manager = self._writable()
        require_step(step)
        require_position(position)
        state = jax.tree.map(
            whole_array, state
        )  # layers on several stages, as one array
        require_leaves(state)
        if step in self.steps:
            raise CheckpointError(
                f"{self.directory} has step {step} already; it has "
                f"{', '.join(map(str, self.steps))}"
            )
        about = describe_save(step, state, plan, position, metrics)
        arguments = save_arguments(state, about)
        self._finish_save(manager)
        self._saving = step
        with as_checkpoint_error(f"saving step {step} in {self.directory} failed"):
            manager.save(step, args=arguments, metrics=about["metrics"], force=True)
        if self._group.is_first:
            self._trash.begin_to_empty()

    def wait(self) -> None:
        """Wait until all saves are committed; `CheckpointError` if one fails."""
        self._finish_save(self._writable())
        self._empty_trash()

    def close(self) -> None:
        """Wait until all saves are committed, and let another process write."""
        manager, self._manager = self._manager, None
        try:
            if manager is not None:
                with as_checkpoint_error(self._failed()):
                    manager.close()
                self._empty_trash()
        finally:
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- reading -----------------------------------------------------------------------

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps of all committed checkpoints, in order, read from the directory."""
        steps = list(step_folders(self.directory)) if self._group.is_first else []
        return tuple(self._group.from_first(steps))

    @property
    def latest(self) -> int | None:
        """The step of the newest committed checkpoint; `None` if there is none."""
        return max(self.steps, default=None)

    def saved(self, step: int) -> Saved:
        """The record of a checkpoint: plan, position and metrics, without arrays."""
        try:
            return find_stored(self._folder(step)).saved
        except Exception as error:  # noqa: BLE001  damage may raise anything
            raise CheckpointError(
                f"step {step} of {self.directory} cannot be read ({error}); committed are "
                f"{', '.join(map(str, self.steps)) or 'none'}"
            ) from None

    def restore(
        self,
        like: Any,
        shardings: Any = None,
        step: int | None = None,
        *,
        partial: bool = False,
    ) -> Restored:
        """Restore the newest undamaged checkpoint, on any mesh and number of devices.

        like: arrays or `ShapeDtypeStruct`s in the structure of the state. Numbers of
            Python come back as numbers, and NumPy's 64-bit values as arrays of NumPy.
        shardings: the plan that will run, of which `like` is an argument; or a tree of
            shardings in the structure of `like`; or one sharding for all arrays. The
            default is the sharding of each leaf of `like`.
        step: the only checkpoint to try; an error is raised if it is damaged.
        partial: restore only the arrays that `like` has, of a state that has more.
        A damaged checkpoint is skipped with a warning that names the first array that
        cannot be read or has changed; the writer moves it to the folder "damaged".
        Raises `CheckpointError` if no checkpoint is left, or if its state does not
        match `like`.
        """
        targets = restore_targets(like, shardings)
        skipped: list[Skipped] = []
        for each in newest_first(self.directory, self._group, step):
            try:
                restored = restore_step(
                    self._folder(each), targets, self._group, partial
                )
            except Damaged as damage:
                if each not in self.steps:  # the writer has deleted it meanwhile
                    continue
                skipped.append(Skipped(each, str(damage)))
                if step is not None:
                    raise CheckpointError(
                        f"step {each} of {self.directory} is damaged: {damage}"
                    ) from None
                continue
            self._report(skipped)
            return Restored(restored[0], restored[1], tuple(skipped))
        raise CheckpointError(
            "\n".join(
                [
                    f"{self.directory} has no checkpoint that can be restored",
                    *map(str, skipped),
                ]
            )
        )

    def __str__(self) -> str:
        lines = [f"checkpoints in {self.directory}, keeps {self.retention}"]
        for step in self.steps:
            try:
                lines.append(f"  {find_stored(self._folder(step)).saved}")
            except Exception as error:  # noqa: BLE001  damage is printed, too
                lines.append(f"  step {step}: cannot be read ({error})")
        return "\n".join(lines)

    __repr__ = __str__

    # -- the directory -----------------------------------------------------------------

    def _folder(self, step: int) -> Path:
        """The folder of a step, whose name plain Orbax may have given a prefix."""
        plain = self.directory / str(step)
        return (
            plain if plain.is_dir() else step_folders(self.directory).get(step, plain)
        )

    def _open(self) -> None:
        """Become the writer: lock the directory, delete remains of a killed writer.

        Then start Orbax.
        """
        refused = None
        if self._group.is_first:
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
                self._lock = acquire_lock(self.directory)
            except (OSError, CheckpointError) as error:
                refused = str(error)
        refused = self._group.from_first(refused)
        if refused is not None:
            raise CheckpointError(refused)
        try:
            self._empty_trash()
            with as_checkpoint_error(f"{self.directory} cannot be opened"):
                self._manager = open_manager(self.directory, self.retention)
        except BaseException:
            self._release()
            raise

    def _writable(self) -> Any:
        if self._manager is None:
            why = "opened with read_only=True" if self.read_only else "closed"
            raise CheckpointError(f"{self.directory} is {why}; open it again to save")
        return self._manager

    def _finish_save(self, manager: Any) -> None:
        """Wait for the previous save; if it failed, the error names its step."""
        with as_checkpoint_error(self._failed()):
            manager.wait_until_finished()
        self._saving = None

    def _failed(self) -> str:
        step = "" if self._saving is None else f" step {self._saving}"
        return f"saving{step} in {self.directory} failed"

    def _empty_trash(self) -> None:
        if self._group.is_first:
            self._trash.empty()

    def _release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            release_lock(lock)

    def _report(self, skipped: list[Skipped]) -> None:
        """Warn of damaged checkpoints; the writer also moves them to "damaged"."""
        for each in skipped:
            warnings.warn(f"{self.directory}: {each}", MeshwrightWarning, stacklevel=3)
        if self._manager is None or not skipped:
            return
        if self._lock is not None:
            for each in skipped:
                set_aside(self.directory, each.step)
        self._group.gather(None)  # wait for the first process
        self._manager.reload()
