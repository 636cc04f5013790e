from dataclasses import replace

import jax
import pytest

import meshwright as mw
from zoo import llm
from zoo.decoder import Decoder, shapes
from zoo.workload import num_parameters

FORMS = {
    "llama": llm.TINY,
    "gpt": llm.TINY_GPT,
    "maxtext": replace(llm.TINY, kv_heads=None, d_head=16, remat="full"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_each_family_learns_the_text_in_its_small_form(name):
    losses = [told["loss"] for told in llm.learn(FORMS[name], seed=0, steps=60)]
    assert losses[0] > 5.0
    assert losses[-1] < 3.0


@pytest.mark.slow
def test_the_best_schedule_gives_a_gpt_the_numbers_of_one_device():
    fn, args = llm.tiny_gpt()
    best = llm.schedules[llm.workload.best]
    report = mw.partition(fn, llm.workload.mesh, best).check(*args)
    assert report.ok, str(report)


def test_every_size_is_a_target_of_its_name():
    assert list(llm.targets) == list(llm.SIZES)
    assert [make.__name__ for make in llm.workload.full] == list(llm.SIZES)


@pytest.mark.parametrize("name", llm.UNROLLED)
def test_an_unrolled_size_differs_only_in_how_it_is_written(name):
    unrolled = llm.SIZES[f"{name}_unrolled"]
    assert not unrolled.scan
    assert replace(unrolled, scan=True) == llm.SIZES[name]


def test_unrolled_layers_have_the_parameters_of_scanned_ones():
    counts = [
        num_parameters(llm.targets[name]()[1][0].params)
        for name in ("gpt_125m", "gpt_125m_unrolled")
    ]
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    ("scale", "layers", "d_model", "heads", "d_ff"),
    [
        (1, 16, 2048, 16, 7168),
        (16, 32, 4096, 64, 28_672),
        (32, 32, 8192, 64, 28_672),
        (64, 64, 8192, 64, 28_672),
        (1024, 128, 16_384, 256, 114_688),
    ],
)
def test_a_scale_doubles_heads_then_width_then_layers(
    scale, layers, d_model, heads, d_ff
):
    got = llm.scaled(scale, batch=8, remat="full")
    assert (got.layers, got.d_model, got.heads, got.d_ff) == (
        layers, d_model, heads, d_ff,
    )  # fmt: skip
    assert got.head_width == 128


@pytest.mark.parametrize("scale", [0, -2, 48])
def test_a_scale_that_is_no_power_of_two_is_refused(scale):
    with pytest.raises(ValueError, match=f"a scale is a power of two, not {scale}"):
        llm.scaled(scale, batch=8, remat="full")


def test_thirteen_billion_need_heads_of_128_at_width_5120():
    """The printed width of 5140 is no multiple of 40 heads."""
    config = llm.SIZES["gpt_13b"]
    assert config.head_width == 128
    with pytest.raises(ValueError, match="40 heads do not divide d_model 5140"):
        replace(config, d_model=5140)


def test_llama_3_groups_its_queries():
    attention = llm.targets["llama3_70b"]()[1][0].params["stack"]["layers"]["attention"]
    assert attention["q"]["kernel"].shape == (80, 8192, 64, 128)
    assert attention["k"]["kernel"].shape == (80, 8192, 8, 128)


def test_a_gpt_has_sixteen_tensors_a_block_and_four_more():
    """As T24: token embedding and positions; here a last norm's scale and shift too."""
    config = replace(llm.SIZES["gpt_125m"], layers=2, scan=False)
    assert len(jax.tree.leaves(shapes(Decoder(config))[0].params)) == 2 * 16 + 4
