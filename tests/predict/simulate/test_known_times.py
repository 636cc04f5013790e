"""Times of equal kernels and collectives are computed once and equal those alone."""

from meshwright.machine import load_machine
from meshwright.machine.placement import place_mesh
from meshwright.predict.compilers.model.fusion import FusionKind
from meshwright.predict.roofline.kernel_time import KernelTraffic, kernel_time
from meshwright.predict.simulate import timeline
from meshwright.predict.simulate.timeline import Setting
from tests.predict.compilers.compiled import fused
from tests.predict.simulate.test_timeline import lowered, run


def num_computed(made, monkeypatch):
    """Number of times that kernels and collectives of a program are timed."""
    counts = {"kernels": 0, "collectives": 0}

    def counted(name, fn):
        def inner(*args):
            counts[name] += 1
            return fn(*args)

        return inner

    with monkeypatch.context() as patch:
        patch.setattr(timeline, "kernel_time", counted("kernels", kernel_time))
        table = {k: counted("collectives", f) for k, f in timeline.COLLECTIVE_S.items()}
        patch.setattr(timeline, "COLLECTIVE_S", table)
        run(made=made)
    return counts


def test_equal_layers_are_timed_once(monkeypatch):
    few, many = lowered(layers=4), lowered(layers=9)
    assert len(run(made=many).spans) > 2 * len(run(made=few).spans)
    counts = num_computed(many, monkeypatch)
    assert counts == num_computed(few, monkeypatch)
    assert all(count > 0 for count in counts.values())


def test_a_memoised_time_equals_that_of_the_kernel_alone():
    made = lowered()
    shared = Setting(place_mesh(made.mesh, load_machine("tpu-v5e", 8)), frozenset())
    chip = shared.placement.machine.chip
    kernels = fused(made.program).kernels.kernels
    computing = [
        each for each in kernels if each.fusion.kind is not FusionKind.COLLECTIVE
    ]
    assert any(each.fusion.kind is FusionKind.PRODUCT for each in computing)
    for each in computing:
        fusion = each.fusion
        for num_bytes, elements in ((2**20, 2**18), (2**28, 2**10), (0, 0)):
            streams = each.streams and each.streams.outside(())
            alone = KernelTraffic(num_bytes, elements, streams)
            assert shared.kernel_time(each, alone) == kernel_time(
                fusion.root, fusion.work, alone, chip
            )
