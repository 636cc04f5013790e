"""Networks on approximate arrays: quantised products, the chip, and the command."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from meshwright.codesign import accelerator as acc
from meshwright.errors import AcceleratorError, SearchError
from meshwright.features.codesign.accelerator.approximate.chip import RoutedChip
from meshwright.features.codesign.accelerator.command import accelerator_command

RNG = np.random.default_rng(0)
INPUTS = RNG.standard_normal((40, 6, 6, 4)).astype(np.float32)
PARAMS = {
    "conv": RNG.standard_normal((3, 3, 4, 8)).astype(np.float32) / 6,
    "depth": RNG.standard_normal((3, 3, 1, 8)).astype(np.float32) / 3,
    "head": RNG.standard_normal((8, 5)).astype(np.float32),
}


def net(params, x):
    form = ("NHWC", "HWIO", "NHWC")
    x = jax.lax.conv_general_dilated(
        x, params["conv"], (2, 1), "SAME", rhs_dilation=(1, 2), dimension_numbers=form
    )
    x = jax.lax.conv_general_dilated(
        jax.nn.relu(x), params["depth"], (1, 1), "VALID" if x.shape[1] > 9 else "SAME",
        dimension_numbers=form, feature_group_count=8,
    )  # fmt: skip
    x = x.reshape(len(x), -1, 8)
    mixed = jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", x, x)) @ x
    return mixed.mean(1) @ params["head"]


LABELS = np.asarray(net(PARAMS, INPUTS)).argmax(-1)


def target():
    return net, (PARAMS, INPUTS[:1])


@pytest.mark.parametrize("signed", [True, False])
def test_exact_tables_give_the_network_up_to_rounding(signed):
    made = acc.QuantisedNetwork(net, (PARAMS,), INPUTS, signed=signed, batch=20)
    assert len(made.products) == 5
    scores = made(INPUTS, [acc.exact(signed)] * 5)
    wanted = np.asarray(net(PARAMS, INPUTS))
    assert np.abs(scores - wanted).max() < 0.05 * np.abs(wanted).max()
    other = made(INPUTS, [acc.LIBRARY["broken-7-3"](signed)] * 5)
    assert np.abs(other - wanted).max() > 2 * np.abs(scores - wanted).max()
    with pytest.raises(AcceleratorError, match="signed, and the network's"):
        made(INPUTS, [acc.exact(not signed)] * 5)


def test_products_are_integer_sums_of_table_entries():
    """One layer, against plain integers: scales of 1 make all numbers integers."""
    rng = np.random.default_rng(1)
    x = rng.integers(-127, 128, (9, 6)).astype(np.float32)
    w = rng.integers(-127, 128, (6, 3)).astype(np.float32)
    x[0, 0], w[0] = 127, 127
    made = acc.QuantisedNetwork(lambda w, x: x @ w, (w,), x)
    for kind in (acc.mitchell(), acc.broken_array(6, 2)):
        sums = acc.approximate_dot(x.astype(np.int8), w.astype(np.int8), kind)
        assert made(x, [kind]).tolist() == sums.tolist()


def test_chip_figures_of_all_arrays_alike_and_of_two_kinds():
    made = acc.QuantisedNetwork(net, (PARAMS,), INPUTS)
    chip = RoutedChip.of(
        acc.Design.load("edge-tpu"), made.products, net, (PARAMS, INPUTS)
    )
    right, cheap = acc.exact(), acc.broken_array(7, 3)
    plain = chip.figures([right] * 5)
    assert (plain.power, plain.area, plain.time) == (1.0, 1.0, 1.0)
    alike = chip.figures([cheap] * 5)
    mixed = chip.figures([right, cheap, cheap, cheap, right])
    assert alike.area < mixed.area < 1
    assert alike.power < mixed.power < 1
    assert alike.time == 1 <= mixed.time
    assert sum(mixed.arrays.values()) == 16
    # the pace is that of the busiest group of arrays
    loads = chip.loads
    groups = {"exact": loads[0] + loads[4], cheap.name: sum(loads[1:4])}
    pace = max(groups[n] / mixed.arrays[n] for n in groups)
    assert mixed.time == pytest.approx(16 * pace / sum(loads))


def test_the_command_routes_and_goes_on(tmp_path):
    np.savez(tmp_path / "data.npz", inputs=INPUTS, labels=LABELS)
    folder = tmp_path / "multipliers"
    folder.mkdir()
    for kind in (acc.exact(), acc.broken_array(2), acc.broken_array(7, 3)):
        acc.write_multiplier(folder, kind)

    def run(*more):
        words = ["approximate", f"{Path(__file__)}:target", tmp_path / "data.npz"]
        words += ["--multipliers", folder, "--out", tmp_path / "routed", "--json"]
        return CliRunner().invoke(accelerator_command, [*map(str, words), *more])

    first = run("--trials", "30", "--max-loss", "0.05")
    assert first.exit_code == 0, first.output
    found = json.loads(first.stdout)
    assert found["power"] < 1
    assert found["area"] < 1
    assert found["exact_accuracy"] - found["accuracy"] <= 0.05
    assert found["time"] <= 1.05
    losses = [point["loss"] for point in found["curve"]]
    assert losses == sorted(losses)
    assert run("--trials", "30", "--max-loss", "0.05").stdout == first.stdout
    assert found == json.loads((tmp_path / "routed" / "routing.json").read_text())


def test_data_without_labels_is_refused(tmp_path):
    np.savez(tmp_path / "data.npz", inputs=INPUTS)
    words = ["approximate", "x.py", str(tmp_path / "data.npz"), "--out", str(tmp_path)]
    result = CliRunner().invoke(accelerator_command, words)
    assert isinstance(result.exception, AcceleratorError)
    assert "wanted" in str(result.exception) or "labels" in str(result.exception)


@pytest.mark.parametrize(("change", "said"), [
    ({"labels": LABELS + 0.5}, "wanted whole numbers"),
    ({"labels": LABELS + 100}, "wanted 0 to 4"),
    ({"inputs": INPUTS * np.nan}, "not finite"),
    ({"weights": [jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), PARAMS)]},
     "wanted arrays"),
    ({"max_loss": -0.1}, "wanted 0 to 1"),
    ({"max_loss": float("nan")}, "wanted 0 to 1"),
])  # fmt: skip
def test_data_that_means_nothing_is_refused(change, said):
    given = {"weights": [PARAMS], "inputs": INPUTS, "labels": LABELS} | change
    with pytest.raises(AcceleratorError, match=said):
        acc.route(net, trials=1, **given)


def test_a_journal_of_other_data_is_refused(tmp_path):
    kinds = [acc.exact(), acc.broken_array(2)]
    common = {"multipliers": kinds, "trials": 2, "engine": "random"}
    common["journal"] = tmp_path / "journal.jsonl"
    acc.route(net, [PARAMS], INPUTS, LABELS, **common)
    with pytest.raises(SearchError, match="evaluation, in network"):
        acc.route(net, [PARAMS], INPUTS[:30], LABELS[:30], **common)
