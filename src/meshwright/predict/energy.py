"""Energy, carbon and money of a run, as the field reports them.

The formulas are those of Patterson et al., "Carbon Emissions and Large Neural Network
Training" (2021): energy is time times devices times their mean power times the overhead
of the data centre (PUE); emissions are energy times the intensity of the place's grid.
Emissions of manufacturing the machines are left out.
"""

from dataclasses import dataclass

from meshwright.errors import MachineError, did_you_mean

JOULES_PER_KWH = 3.6e6
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Location:
    """A place where machines stand, with the carbon intensity of its grid.

    gross_g_per_kwh: grams of CO2 equivalent for the local grid's mix.
    net_g_per_kwh: the same after carbon-free energy that is bought locally, hour by hour.
    source: publication of the numbers.
    pue: power of the data centre over power of its computers; `None` to use the
        machine's.
    """

    name: str
    gross_g_per_kwh: float
    net_g_per_kwh: float
    source: str
    pue: float | None = None


_TABLE_1 = "Patterson et al. (2021), Table 1"
_TABLE_4 = "Patterson et al. (2021), Table 4"

LOCATIONS: dict[str, Location] = {
    place.name: place
    for place in (
        Location("us-average", 429, 429, f"{_TABLE_1}: 2018 to 2020", 1.59),
        Location("iowa", 478, 80, f"{_TABLE_1}: Google, 2020", 1.11),
        Location("georgia", 415, 415, f"{_TABLE_4}: Google, December 2019", 1.09),
        Location("taiwan", 545, 545, f"{_TABLE_4}: Google, September 2019", 1.12),
        Location("north-carolina", 201, 177, f"{_TABLE_4}: Google, April 2020", 1.09),
    )
}


def find_location(name: str) -> Location:
    """The location of that name; `MachineError` with all names if there is none."""
    if not isinstance(name, str) or name not in LOCATIONS:  # pyright: ignore[reportUnnecessaryIsInstance]
        hint = did_you_mean(name, LOCATIONS)
        raise MachineError(
            f"there is no place {name!r}{hint}; there are {', '.join(LOCATIONS)}"
        )
    return LOCATIONS[name]


def energy_j(seconds: float, num_chips: int, mean_w: float, pue: float) -> float:
    """Joules of `num_chips` that draw `mean_w` each, with the data centre's overhead."""
    return seconds * num_chips * mean_w * pue


def co2e_g(energy: float, g_per_kwh: float) -> float:
    """Grams of CO2 equivalent of `energy` in joules."""
    return energy / JOULES_PER_KWH * g_per_kwh


def rent_usd(seconds: float, num_chips: int, usd_per_hour: float) -> float:
    """Dollars for `num_chips` at an hourly price for each."""
    return seconds / HOUR_S * num_chips * usd_per_hour
