"""Energy and carbon, against the tables of the papers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import MachineError
from meshwright.predict.energy import (
    co2e_g,
    energy_j,
    find_location,
    rent_usd,
)

DAY_S = 86_400

# Patterson et al. (2021), Table 4: chips, days, W, PUE, gross, net kg/kWh -> MWh, t, t
RUNS = {
    "Evolved Transformer search": (200, 6.8, 208, 1.10, 0.431, 0.431, 7.5, 3.2, 3.2),
    "T5": (512, 20, 310, 1.12, 0.545, 0.545, 85.7, 46.7, 46.7),
    "Meena": (1024, 30, 289, 1.09, 0.415, 0.415, 232, 96.4, 96.4),
    "GShard-600B": (1024, 3.1, 288, 1.09, 0.201, 0.177, 24.1, 4.8, 4.3),
    "Switch": (1024, 27, 245, 1.10, 0.403, 0.330, 179, 72.2, 59.1),
    "GPT-3": (10_000, 14.8, 330, 1.10, 0.429, 0.429, 1287, 552.1, 552.1),
}

# Table 1, 8 chips: W, PUE, days, gross, net kg/kWh -> kWh, gross t, net t
SMALL = {
    "Big, P100, US": (296, 1.59, 3.5, 0.429, 0.429, 316, 0.1357, 0.1357),
    "Big, P100, Iowa": (296, 1.11, 3.5, 0.478, 0.080, 221, 0.1055, 0.0177),
    "Evolved, P100, Iowa": (271, 1.11, 3.2, 0.478, 0.080, 185, 0.0883, 0.0148),
    "Big, TPU v2, Iowa": (229, 1.11, 0.81, 0.478, 0.080, 40, 0.0189, 0.0032),
    "Evolved, TPU v2, Iowa": (227, 1.11, 0.62, 0.478, 0.080, 30, 0.0143, 0.0024),
}


@pytest.mark.parametrize("name", RUNS)
def test_runs_of_the_paper_come_out_within_two_percent(name):
    chips, days, watts, pue, gross, net, mwh, gross_t, net_t = RUNS[name]
    energy = energy_j(days * DAY_S, chips, watts, pue)
    assert energy / 3.6e9 == pytest.approx(mwh, rel=0.02)
    assert co2e_g(energy, gross * 1e3) / 1e6 == pytest.approx(gross_t, rel=0.02)
    assert co2e_g(energy, net * 1e3) / 1e6 == pytest.approx(net_t, rel=0.02)


@pytest.mark.parametrize("name", SMALL)
def test_small_runs_of_the_paper_come_out_within_two_percent(name):
    watts, pue, days, gross, net, kwh, gross_t, net_t = SMALL[name]
    energy = energy_j(days * DAY_S, 8, watts, pue)
    assert energy / 3.6e6 == pytest.approx(kwh, rel=0.02)
    assert co2e_g(energy, gross * 1e3) / 1e6 == pytest.approx(gross_t, rel=0.02)
    assert co2e_g(energy, net * 1e3) / 1e6 == pytest.approx(net_t, rel=0.02)


def test_glam_used_what_its_paper_says():
    """Du et al. (2022): 1,024 TPU v4 at 326 W for 574 hours took 213 MWh."""
    energy = energy_j(574 * 3600, 1024, 326, 1.11)
    assert energy / 3.6e9 == pytest.approx(213, rel=0.02)


def test_locations_are_found_by_name():
    iowa = find_location("iowa")
    assert (iowa.gross_g_per_kwh, iowa.net_g_per_kwh, iowa.pue) == (478, 80, 1.11)
    with pytest.raises(MachineError, match="no place 'iowaa'; did you mean 'iowa'"):
        find_location("iowaa")


@given(st.floats(1, 1e6), st.integers(1, 10_000), st.floats(0.01, 100))
def test_rent_is_hours_times_chips_times_price(seconds, chips, price):
    assert rent_usd(3600 * seconds, chips, price) == pytest.approx(
        seconds * chips * price
    )
