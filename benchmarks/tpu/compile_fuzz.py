"""Found plans of random train steps, compiled by the real TPU compiler.

None may fail, and none may need much more memory than was predicted.

A step has transformer blocks that are scanned or unrolled, perhaps rematted, in bfloat16 or
float32, with gradients accumulated over microbatches and an optimizer of its own. It is
planned by a search or by the schedules of experts, and compiled up to buffer assignment.
Needs `meshwright[tpu]`.

    python -m benchmarks tpu compile_fuzz [--cases 200] [--first 0] [--budget 3]

Resumable: cases in the results file are not run again. Exit status 1 if any case fails, or
is predicted 15 % too low.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import meshwright as mw
from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.app.plan import Plan
from meshwright.errors import CompilerError, MeshwrightError

CHIPS = 8
TOO_LOW, CLOSE = 0.15, 0.10
"""Errors of predicted memory: one that fails a case, and one that counts as close."""


@dataclass(frozen=True)
class Case:
    """One random step, and the way in which it is planned."""

    layers: int
    scanned: bool
    remat: bool
    microbatches: int
    compute: str
    stored: str
    accumulated: str
    norm: str
    tied: bool
    grouped: bool
    adam: bool
    sequence: int
    machine: str
    method: str

    @staticmethod
    def draw(number: int) -> Case:
        """The case of a number."""
        pick = random.Random(number).choice
        return Case(
            layers=pick((1, 2, 3)),
            scanned=pick((True, False)),
            remat=pick((True, False)),
            microbatches=pick((1, 2, 4)),
            compute=pick(("bfloat16", "bfloat16", "float32")),
            stored=pick(("bfloat16", "float32")),
            accumulated=pick(("compute", "float32")),
            norm=pick(("none", "scale", "scale in 32 bits")),
            tied=pick((True, False)),
            grouped=pick((True, False)),
            adam=pick((True, False)),
            sequence=pick((64, 256)),
            machine=pick(("tpu-v5e", "tpu-v5p")),
            method=pick(("search", "search", "zero", "fsdp", "megatron")),
        )


WIDTH, HEADS, VOCABULARY, BATCH = 256, 8, 1024, 32


@dataclass(frozen=True)
class Step:
    """The train step of a case."""

    case: Case

    def arguments(self) -> tuple[Any, Any]:
        """The shapes of the state and of the tokens."""
        case, head = self.case, WIDTH // HEADS
        kv_heads = HEADS // 4 if case.grouped else HEADS
        shapes = {
            "q": (WIDTH, HEADS, head),
            "k": (WIDTH, kv_heads, head),
            "v": (WIDTH, kv_heads, head),
            "o": (HEADS, head, WIDTH),
            "up": (WIDTH, 4 * WIDTH),
            "down": (4 * WIDTH, WIDTH),
            "scale": (WIDTH,),
        }
        layers = {name: (case.layers, *shape) for name, shape in shapes.items()}
        params = {"embed": (VOCABULARY, WIDTH), "out": (WIDTH, VOCABULARY), **layers}
        state = {"params": _shaped(params, jnp.dtype(case.stored))}
        if case.adam:
            moments = _shaped(params, jnp.dtype("float32"))
            state |= {"first": moments, "second": moments}
        return state, jax.ShapeDtypeStruct((BATCH, case.sequence), jnp.int32)

    def __call__(self, state: Any, tokens: Any) -> Any:
        """The state after one step of the optimizer."""
        params = state["params"]
        grads = self._gradients(params, tokens)
        if not self.case.adam:
            new = {k: p - 0.1 * grads[k].astype(p.dtype) for k, p in params.items()}
            return {"params": new}
        new, first, second = {}, {}, {}
        for k, p in params.items():
            g = grads[k].astype(jnp.float32)
            first[k] = 0.9 * state["first"][k] + 0.1 * g
            second[k] = 0.99 * state["second"][k] + 0.01 * g**2
            change = 0.1 * first[k] / (jnp.sqrt(second[k]) + 1e-8)
            new[k] = p - change.astype(p.dtype)
        return {"params": new, "first": first, "second": second}

    def _gradients(self, params: Any, tokens: Any) -> Any:
        case = self.case
        if case.microbatches == 1:
            return jax.grad(self._loss)(params, tokens)
        wide = case.accumulated == "float32"

        def add(total: Any, batch: Any) -> Any:
            grads = jax.grad(self._loss)(params, batch)
            return jax.tree.map(lambda t, g: t + g.astype(t.dtype), total, grads), None

        zeros = {
            k: jnp.zeros(p.shape, jnp.float32 if wide else p.dtype)
            for k, p in params.items()
        }
        batches = tokens.reshape(case.microbatches, -1, case.sequence)
        return lax.scan(add, zeros, batches)[0]

    def _loss(self, params: Any, tokens: Any) -> Any:
        case, compute = self.case, jnp.dtype(self.case.compute)
        layers = {k: p for k, p in params.items() if k not in ("embed", "out")}
        h = params["embed"].astype(compute)[tokens]
        block = jax.checkpoint(self._block) if case.remat else self._block
        if case.scanned:
            h, _ = lax.scan(lambda h, w: (block(h, w), None), h, layers)
        else:
            for i in range(case.layers):
                h = block(h, {k: p[i] for k, p in layers.items()})
        out = params["embed"].T if case.tied else params["out"]
        logits = (h @ out.astype(compute)).astype(jnp.float32)
        picked = jnp.take_along_axis(logits, tokens[..., None], -1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)

    def _block(self, h: Any, stored: Any) -> Any:
        compute = jnp.dtype(self.case.compute)
        w = {k: p.astype(compute) for k, p in stored.items() if k != "scale"}
        y = self._normed(h, stored["scale"])
        q, k, v = (jnp.einsum("bsd,dhk->bhsk", y, w[name]) for name in "qkv")
        k, v = (jnp.repeat(a, HEADS // a.shape[1], 1) for a in (k, v))
        scores = jnp.einsum("bhqk,bhsk->bhqs", q, k) * (WIDTH // HEADS) ** -0.5
        mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        probs = jax.nn.softmax(jnp.where(mask, scores.astype(jnp.float32), -1e9), -1)
        mixed = jnp.einsum("bhqs,bhsk->bhqk", probs.astype(compute), v)
        h = h + jnp.einsum("bhqk,hkd->bqd", mixed, w["o"])
        return h + jax.nn.gelu(self._normed(h, stored["scale"]) @ w["up"]) @ w["down"]

    def _normed(self, h: Any, scale: Any) -> Any:
        if self.case.norm == "none":
            return h
        if self.case.norm == "scale":
            return h * scale.astype(h.dtype)
        wide = h.astype(jnp.float32)
        wide = wide * lax.rsqrt(jnp.mean(wide**2, -1, keepdims=True) + 1e-6)
        return (wide * scale.astype(jnp.float32)).astype(h.dtype)


def _shaped(shapes: Any, dtype: Any) -> Any:
    return {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape in shapes.items()}


def plan_of(case: Case, budget_s: float) -> Plan:
    """The plan of a case, on its machine."""
    fn = Step(case)
    args = fn.arguments()
    if case.method == "search":
        return mw.autoplan(
            fn, args, machine=mw.machine(case.machine, chips=CHIPS), budget_s=budget_s
        )
    tactics = [mw.data_parallel("data", "tokens")]
    mesh = {"data": CHIPS}
    if case.method == "zero":
        tactics.append(mw.zero(3, "data"))
    elif case.method == "fsdp":
        tactics.append(mw.fsdp("data"))
    else:
        mesh = {"data": CHIPS // 2, "model": 2}
        tactics += [mw.megatron("model", vocabulary=False), mw.zero(3, "data")]
    return mw.partition(fn, mesh, tactics).plan(*args).on(case.machine)


def run_case(case: Case, budget_s: float) -> dict[str, Any]:
    """The result of a case, "ok" or the error, and its predicted and compiled bytes."""
    try:
        plan = plan_of(case, budget_s)
    except MeshwrightError as error:
        return {"result": f"no plan: {error}"}
    try:
        found = plan.confirm("tpu", timeout_s=240)
    except CompilerError as error:
        return {"result": f"failed: {error}"}
    predicted, compiled = found.predicted.peak_bytes, found.compiled.peak_bytes
    error = predicted / compiled - 1
    result = "ok" if error > -TOO_LOW else f"memory {error:.1%}"
    return {"result": result, "predicted_bytes": predicted, "compiled_bytes": compiled}


def _error(row: Mapping[str, Any]) -> str:
    if "compiled_bytes" not in row:
        return ""
    return f"{row['predicted_bytes'] / row['compiled_bytes'] - 1:+.1%} memory"


@benchmark(
    option("--cases", type=int, default=200),
    option("--first", type=int, default=0),
    option("--budget", type=float, default=3.0),
    option("--only", default="", help="leave out cases of other methods"),
    out=STORED,
)
def main(options: Options) -> None:
    """Run the cases asked for, and print a line for each."""
    rows: dict[str, Any] = options.stored({"cases": {}})["cases"]
    for number in range(options.first, options.first + options.cases):
        if str(number) in rows:
            continue
        case = Case.draw(number)
        if options.only not in case.method:
            continue
        result = run_case(case, options.budget)
        rows[str(number)] = {**result, **asdict(case)}
        print(f"{number:4d} {result['result'][:200]} {_error(result)}", flush=True)
        told = {"jax": jax.__version__, "cases": rows}
        options.save(told)
    failed = [number for number, row in rows.items() if row["result"] != "ok"]
    print(f"{len(rows)} cases, {len(failed)} failed: {', '.join(failed)}")
    errors = [row["predicted_bytes"] / row["compiled_bytes"] - 1
              for row in rows.values() if "compiled_bytes" in row]  # fmt: skip
    close = sum(abs(error) <= CLOSE for error in errors)
    print(f"memory: {close} of {len(errors)} within {CLOSE:.0%}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
