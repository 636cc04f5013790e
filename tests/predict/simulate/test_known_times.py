"""Each distinct unit is reckoned once, and costs what it costs alone."""

from meshwright.machine import load_machine
from meshwright.machine.placement import place_mesh
from meshwright.predict.compilers.xla.fusion import FusionKind
from meshwright.predict.compilers.xla.instruction_fusion import fuse
from meshwright.predict.compilers.xla.kernels import kernels_of
from meshwright.predict.compilers.xla.layouts import Layout
from meshwright.predict.roofline.kernel_time import KernelTraffic, kernel_time
from meshwright.predict.simulate import known_times as prices
from tests.predict.simulate.test_timeline import lowered, run


def reckoned(made, monkeypatch):
    """How many times a unit and a collective are reckoned for a program."""
    counts = {"units": 0, "collectives": 0}

    def counted(name, fn):
        def inner(*args):
            counts[name] += 1
            return fn(*args)

        return inner

    with monkeypatch.context() as patch:
        patch.setattr(prices, "kernel_time", counted("units", kernel_time))
        table = {k: counted("collectives", f) for k, f in prices.COLLECTIVE_S.items()}
        patch.setattr(prices, "COLLECTIVE_S", table)
        run(made=made)
    return counts


def test_more_layers_of_a_kind_are_priced_no_more_often(monkeypatch):
    few, many = lowered(layers=4), lowered(layers=9)
    assert len(run(made=many).spans) > 2 * len(run(made=few).spans)
    assert reckoned(many, monkeypatch) == reckoned(few, monkeypatch)


def test_a_shared_price_is_that_of_the_unit_alone():
    made = lowered()
    shared = prices.KnownTimes(place_mesh(made.mesh, load_machine("tpu-v5e", 8)))
    chip = shared.placement.machine.chip
    program, layout = made.program, Layout()
    passes = kernels_of(program, layout, fuse(program, layout)).kernels
    computing = [
        each for each in passes if each.fusion.kind is not FusionKind.COLLECTIVE
    ]
    assert any(each.fusion.kind is FusionKind.PRODUCT for each in computing)
    for each in computing:
        unit = each.fusion
        for num_bytes, elements in ((2**20, 2**18), (2**28, 2**10), (0, 0)):
            streams = each.sides and each.sides.streams(())
            alone = KernelTraffic(num_bytes, elements, streams)
            assert shared.kernel_time(each, alone) == kernel_time(
                unit.root, unit.work, alone, chip
            )
