"""`nas.Trained`: the figures of a candidate from a short training and a prediction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import jax

from meshwright.errors import SearchError, did_you_mean
from meshwright.features.codesign.nas.cost.latency import latency
from meshwright.features.codesign.nas.searching.model import (
    BuiltModel,
    built_model,
    num_parameters,
)
from meshwright.features.codesign.nas.searching.proxies import PROXIES
from meshwright.features.codesign.nas.searching.supernet import SHARED, Supernet
from meshwright.features.codesign.nas.searching.training import (
    Data,
    read_data,
    trained_accuracy,
)
from meshwright.machine import load_machine
from meshwright.predict.roofline.work import program_work
from meshwright.program.capture import capture


@dataclass(frozen=True, slots=True)
class Trained:
    """An evaluation: `Trained(build, data, steps=100)(candidate)` gives its figures.

    build: from a candidate to a flax linen module, or to (init, apply).
    data: (inputs, labels, test inputs, test labels), or a function that returns them.
        Labels are whole numbers; the loss is cross-entropy over the outputs' last dim.
    steps, batch, rate, seed: of the training, by Adam.
    trainings: from as many seeds, whose mean accuracy and loss count; they cost less than
        their number, since a model is compiled once.
    machine: a preset or TOML file, for `latency_s`, `memory_bytes`, `energy_j` and `co2e_g`
        of one call on `serve_batch` inputs; "" for none.
    proxies: figures of the untrained model: "parameters", "synflow", "naswot".
    supernet: a net with weights shared by all candidates, for the figure `shared_accuracy`.

    Other figures: `accuracy`, `loss`, `parameters` and `macs` of one input.
    """

    build: Callable[[dict[str, Any]], Any]
    data: Data | Callable[[], Data]
    steps: int = 100
    machine: str = ""
    serve_batch: int = 1
    batch: int = 32
    rate: float = 0.01
    seed: int = 0
    trainings: int = 1
    proxies: Sequence[str] = ()
    supernet: Supernet | None = None

    def __post_init__(self) -> None:
        if not callable(self.build):
            wanted = "a function from a candidate to a model"
            raise SearchError(f"build is {self.build!r:.60}; wanted {wanted}")
        if not self.rate > 0:
            raise SearchError(f"rate is {self.rate!r}; wanted a number above 0")
        if isinstance(self.proxies, str):
            raise SearchError(f"proxies is {self.proxies!r}; wanted a list of names")
        if self.machine:
            load_machine(self.machine, None)  # fails for an unknown one
        for name in ("steps", "serve_batch", "batch", "trainings"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise SearchError(
                    f"{name} is {getattr(self, name)!r}; wanted 1 or more"
                )
        for name in self.proxies:
            if name not in PROXIES:
                hint = did_you_mean(name, PROXIES)
                raise SearchError(
                    f"no proxy {name!r}{hint}; there are {', '.join(PROXIES)}"
                )

    def __call__(
        self, candidate: dict[str, Any], fidelity: float = 1.0
    ) -> dict[str, Any]:
        model, data = built_model(self.build(candidate)), read_data(self.data)
        figures = self._priced(model, data)
        for name in self.proxies:
            figures[name] = PROXIES[name](model, jax.numpy.asarray(data[0][:16]))
        if self.supernet is not None:
            figures |= self.supernet(candidate)
        steps = max(1, round(fidelity * self.steps))
        seeds = range(self.seed, self.seed + self.trainings)
        accuracy, loss = trained_accuracy(
            model, data, steps=steps, batch=self.batch, rate=self.rate, seeds=seeds
        )
        return {"accuracy": accuracy, "loss": loss, **figures}

    def _priced(self, model: BuiltModel, data: Data) -> dict[str, float]:
        """Parameters and multiply-adds of a model, and its cost on the machine."""
        fn, args = serving(model, data[2], 1)
        figures = {
            "parameters": float(num_parameters(args[0])),
            "macs": program_work(capture(fn, args).program).flops / 2,
        }
        if self.machine:
            found = latency(*serving(model, data[2], self.serve_batch), self.machine)
            priced = {
                "latency_s": found.seconds,
                "memory_bytes": float(found.memory_bytes),
                "energy_j": found.energy_j,
                "co2e_g": found.co2e_g,
            }
            figures |= {name: v for name, v in priced.items() if v is not None}
        return figures

    @property
    def identity(self) -> dict[str, Any]:
        """The conditions of its figures, besides the candidate, the model and the data."""
        names = ("steps", "serve_batch", "batch", "rate", "seed", "trainings")
        found: dict[str, Any] = {name: getattr(self, name) for name in names}
        found["proxies"] = list(self.proxy_names)
        return found | {"machine": machine_identity(self.machine)}

    @property
    def proxy_names(self) -> tuple[str, ...]:
        """The figures that are proxies of accuracy."""
        shared = () if self.supernet is None else (SHARED,)
        return (*self.proxies, *shared)

    def target(
        self, candidate: dict[str, Any]
    ) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """The serving function of a candidate and its arguments, as a target has them."""
        data = read_data(self.data)
        return serving(built_model(self.build(candidate)), data[2], self.serve_batch)


def machine_identity(text: str) -> str:
    """The name of a machine and a digest of its numbers; "" for none."""
    if not text:
        return ""
    machine = load_machine(text, None)
    digest = blake2b(repr(machine).encode(), digest_size=4).hexdigest()
    return f"{machine.name} ({digest})"


def serving(
    model: BuiltModel, inputs: Any, batch: int
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function of parameters, other state and a batch of inputs, and their shapes."""
    x = jax.ShapeDtypeStruct((batch, *inputs.shape[1:]), inputs.dtype)
    params, state = jax.eval_shape(model.init, jax.random.key(0), x)

    def serve(params: Any, state: Any, x: Any) -> Any:
        return model.apply(params, state, x, None)[0]

    return serve, (params, state, x)
