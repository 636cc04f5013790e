"""TracedTargets on designs: layers, what stays on the chip, and logs of designs."""

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshwright.codesign import accelerator as acc
from meshwright.errors import AcceleratorError
from meshwright.features.codesign.accelerator.logs.prime_space import (
    NUM_DESIGNS,
    draw,
)
from meshwright.features.codesign.accelerator.logs.write_logs import (
    read_log,
    simulate_design,
    write_log,
)
from meshwright.features.codesign.accelerator.simulate.residency import LayerLoad, fuse
from meshwright.features.codesign.accelerator.workload.layers import LayerValue

DESIGN = acc.Design.load("tpu-v4i")


def shaped(*shape, dtype=jnp.bfloat16):
    return jax.ShapeDtypeStruct(shape, dtype)


def chain(x, weights):
    for w in weights:
        x = jax.nn.relu(x @ w)
    return x


@pytest.mark.parametrize("rows", [1, 2, 64])
def test_numbers_have_their_size_where_no_array_computes_a_product(rows):
    args = shaped(rows, 256), [shaped(256, 512), shaped(512, 256)]
    read = acc.evaluate_workload(DESIGN, acc.workload_of(chain, args)).dram_bytes
    least = 2 * 2 * 256 * 512
    assert least <= read <= 1.01 * least + 8 * rows * 512
    ids = shaped(rows, dtype=jnp.int32), shaped(256, 512)
    rows_of = acc.workload_of(lambda at, table: table[at] * 2, ids)
    assert rows_of.itemsize == 2


def test_layers_are_products_with_the_work_around_them():
    args = shaped(64, 256), [shaped(256, 512), shaped(512, 256)]
    work = acc.workload_of(chain, args)
    assert len(work.layers) == 2
    assert work.multiply_adds == 2 * 64 * 256 * 512
    assert work.weight_bytes == 2 * 2 * 256 * 512
    first, second = work.layers
    assert first.writes[0] == second.left
    assert second.vector_flops == 64 * 256 + (
        64 * 512 if first.vector_flops == 0 else 0
    )


def test_a_scan_counts_its_weights_and_its_body_once_per_iteration():
    def scanned(x, stacked):
        return jax.lax.scan(lambda x, w: (jax.nn.relu(x @ w), None), x, stacked)[0]

    looped = acc.workload_of(scanned, (shaped(64, 256), shaped(3, 256, 256)))
    listed = acc.workload_of(chain, (shaped(64, 256), [shaped(256, 256)] * 3))
    assert looped.multiply_adds == listed.multiply_adds
    assert looped.weight_bytes == listed.weight_bytes


@pytest.mark.parametrize("groups", [1, 32])
def test_convolutions_are_products_of_positions_and_channels(groups):
    def conv(x, w):
        return jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", feature_group_count=groups,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )  # fmt: skip

    work = acc.workload_of(conv, (shaped(2, 8, 8, 32), shaped(3, 3, 32 // groups, 32)))
    (layer,) = work.layers
    extents = layer.product.extents
    assert (extents.batch, extents.m) == (groups, 2 * 8 * 8)
    assert (extents.n, extents.k) == (32 // groups, 9 * 32 // groups)
    assert bool(layer.depthwise_flops) == (groups == 32)


def test_figures_add_up():
    found = acc.evaluate(DESIGN, chain, (shaped(64, 256), [shaped(256, 256)] * 3))
    assert found.seconds == pytest.approx(sum(r.times * r.seconds for r in found.by_op))
    assert found.energy_j == pytest.approx(sum(found.by_level.values()))
    assert found.power_w == pytest.approx(found.energy_j / found.seconds)
    assert found.power_w < found.design.tdp_w
    assert 0 < found.utilisation <= 1


def test_more_memory_bandwidth_and_clock_never_slow_a_program():
    args = (shaped(512, 1024), [shaped(1024, 1024)] * 4)
    base = acc.evaluate(DESIGN, chain, args).seconds
    for change in (
        {"dram_channels": 4},
        {"clock_hz": 2e9},
        {"global_bytes_per_s": 4e12},
        {"global_bytes": 256 << 20},
    ):
        assert (
            acc.evaluate(DESIGN.changed(**change), chain, args).seconds <= base * 1.001
        )


def test_values_that_stay_save_exactly_their_bytes():
    args = (shaped(8192, 512), [shaped(512, 512)] * 3)
    slow = DESIGN.changed(dram_channel_bytes_per_s=1e9)
    apart = acc.evaluate(slow, chain, args, is_fused=False)
    found = acc.evaluate(slow, chain, args)
    saved = apart.dram_bytes - found.dram_bytes
    assert saved == pytest.approx(2 * 2 * 8192 * 512 * 2 + 3 * 512 * 512 * 2)
    assert found.residency.saved_s == pytest.approx(apart.seconds - found.seconds)


def random_problem(random):
    """A chain with skips: loads of layers, and the values that they exchange.

    Some layers have two weights, of which only one may fit.
    """
    count = int(random.integers(2, 5))
    tensors, reads, writes = [], [{} for _ in range(count)], [{} for _ in range(count)]
    for i in range(count):
        for is_weight in (False, *[True] * int(random.integers(1, 3))):
            size = float(random.integers(1, 12))
            number = len(tensors)
            tensors.append(LayerValue(number, size, is_weight))
            if is_weight:
                reads[i][number] = size
            else:
                writes[i][number] = size
                for j in range(i + 1, min(i + 3, count)):
                    if j == i + 1 or random.random() < 0.4:
                        reads[j][number] = size * float(random.integers(1, 3))
    loads = [
        LayerLoad({"arrays": float(random.integers(0, 20))}, r, w,
                  float(random.integers(0, 4)), int(random.integers(1, 3)))
        for r, w in zip(reads, writes, strict=True)
    ]  # fmt: skip
    return loads, tensors


def best_by_enumeration(loads, tensors, room):
    """The least seconds over all sets of values that fit at every layer."""
    makers = {n: i for i, load in enumerate(loads) for n in load.writes}
    users = {t.number: [i for i, load in enumerate(loads)
                        if t.number in load.reads or t.number in load.writes]
             for t in tensors}  # fmt: skip
    free = [t.number for t in tensors
            if t.is_weight or (t.number in makers and len(users[t.number]) > 1)
            ]  # fmt: skip
    best = float("inf")
    for taken in itertools.product((0, 1), repeat=len(free)):
        stays = frozenset(n for n, x in zip(free, taken, strict=True) if x)
        use = [load.held_bytes for load in loads]
        for n in stays:
            first, last = min(users[n]), max(users[n]) + 1
            if tensors[n].is_weight:
                first, last = 0, len(loads)
            for i in range(first, last):
                use[i] += tensors[n].num_bytes
        if max(use) <= room:
            best = min(best, sum(x.times * x.seconds(stays, 1.0) for x in loads))
    return best


def test_fusion_equals_enumeration():
    random = np.random.default_rng(2)
    for _ in range(60):
        loads, tensors = random_problem(random)
        room = float(random.integers(4, 40))
        room = max(room, max(load.held_bytes for load in loads))
        found = fuse(loads, tensors, room, 1.0)
        seconds = sum(x.times * x.seconds(found.resident, 1.0) for x in loads)
        assert seconds == pytest.approx(best_by_enumeration(loads, tensors, room))
        short = [
            replace(x, parts_s={p: s * 1e-9 for p, s in x.parts_s.items()})
            for x in loads
        ]
        again = fuse(short, tensors, room, 1e9)
        assert again.saved_s == pytest.approx(1e-9 * found.saved_s)
        assert found.peak_bytes <= room


def test_the_published_space_has_its_number_of_designs():
    assert NUM_DESIGNS == 452_760_000


def test_a_log_that_was_cut_continues_as_if_it_had_not_been(tmp_path):
    work = acc.workload_of(chain, (shaped(64, 256), [shaped(256, 256)] * 2))
    whole, cut = tmp_path / "whole.csv", tmp_path / "cut.csv"
    feasible = write_log(whole, work, 40, seed=3)
    text = whole.read_text()
    cut.write_text(text[: len(text) // 2])
    assert write_log(cut, work, 40, seed=3) == feasible
    assert cut.read_text() == text
    rows = list(read_log(whole))
    assert sum(row["infeasible"] == "0" for row in rows) == feasible
    with pytest.raises(AcceleratorError, match="another seed"):
        write_log(cut, work, 41, seed=4)


def test_a_design_outside_the_caps_says_why():
    work = acc.workload_of(chain, (shaped(64, 256), [shaped(256, 256)] * 2))
    reasons = {
        simulate_design(draw(0, i), work).reason.split(" ")[0] for i in range(40)
    }
    assert {"", "area", "global_bytes"} <= reasons


def test_a_program_that_computes_nothing_is_refused():
    with pytest.raises(AcceleratorError, match="computes nothing"):
        acc.workload_of(lambda x: x, (shaped(3),), "same")
    with pytest.raises(AcceleratorError, match="computes nothing"):
        acc.workload_of(lambda x, w: x @ w, (shaped(0, 3), shaped(3, 0)))


def test_a_program_beyond_the_main_memory_is_refused():
    args = (shaped(64, 256), [shaped(256, 256)] * 4)
    small = DESIGN.changed(dram_channel_bytes=1024, dram_channels=1, global_bytes=0)
    with pytest.raises(AcceleratorError, match=r"main memory lacks \d+ bytes"):
        acc.evaluate(small, chain, args)


@pytest.mark.parametrize(("fn", "args", "most"), [
    (lambda t, i: t[i], (shaped(50000, 64), shaped(32, dtype=jnp.int32)), 16 * 32 * 64),
    (lambda c, x, i: jax.lax.dynamic_update_slice(c, x, (i, 0)),
     (shaped(8192, 128), shaped(1, 128), shaped(dtype=jnp.int32)), 8 * 128),
    (lambda c: 2 * c[3:5], (shaped(8192, 128),), 8 * 2 * 128),
    (lambda c, x: jax.lax.fori_loop(0, 24, lambda i, x: jnp.tanh(x @ c[i]), x),
     (shaped(24, 128, 128), shaped(8, 128)), 1.2 * 24 * 2 * (128 * 128 + 2 * 8 * 128)),
])  # fmt: skip
def test_of_what_is_read_or_written_in_part_only_the_part_moves(fn, args, most):
    found = acc.evaluate(acc.Design.load("tpu-v3"), fn, args)
    assert found.dram_bytes <= most + 64 * 32  # indices and scalars besides
