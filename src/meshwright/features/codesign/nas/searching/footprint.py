"""Energy and carbon of a search, and what its best model saves in use."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.app.output.numbers import show_si
from meshwright.predict.energy import JOULES_PER_KWH, co2e_g, energy_j, find_location
from meshwright.search.trials import Front

CORE_W = 10.0
"""Mean power of one busy core with its share of a server, W: a Xeon Platinum 8480+ takes
350 W for 56 cores (data sheet), and a server about 1.6 times its processors."""

_INFERENCES = 1e6


@dataclass(frozen=True, slots=True)
class Footprint:
    """Energy and carbon of a search on this computer.

    seconds: of cores, which trained and predicted, a journal's trials included.
    saved_j: joules that the most economical model of the front saves per million calls
        against the hungriest candidate that was tried; `None` without predicted energy.
    """

    seconds: float
    saved_j: float | None
    place: str = "us-average"

    @classmethod
    def of(cls, front: Front, here_s: float, workers: int) -> Footprint:
        """The footprint of a search; its trials' seconds count, or this process's own."""
        spent = sum(trial.seconds for trial in front.trials)
        energies = [
            t.values["energy_j"] for t in front.trials if "energy_j" in t.values
        ]
        best = [p.values["energy_j"] for p in front.points if "energy_j" in p.values]
        saved = _INFERENCES * (max(energies) - min(best)) if best else None
        return cls(spent + here_s if workers else max(spent, here_s), saved)

    @property
    def energy_kwh(self) -> float:
        """Kilowatt-hours of the search, with the data centre's overhead."""
        pue = find_location(self.place).pue or 1.0
        return energy_j(self.seconds, 1, CORE_W, pue) / JOULES_PER_KWH

    def _grams(self, kwh: float) -> float:
        place = find_location(self.place)
        return co2e_g(kwh * JOULES_PER_KWH, place.gross_g_per_kwh)

    def lines(self) -> list[str]:
        """Lines of text: the energy that the search took, and that its model saves."""
        took = f"{show_si(self._grams(self.energy_kwh), 'g')} CO2e"
        found = [
            f"the search took {self.seconds:.0f} core-seconds, "
            f"{self.energy_kwh:.4f} kWh, {took} ({self.place}, {CORE_W:.0f} W a core)"
        ]
        if self.saved_j is not None:
            kwh = self.saved_j / JOULES_PER_KWH
            found.append(
                f"a million inferences of the most economical model save {kwh:.3g} kWh, "
                f"{show_si(self._grams(kwh), 'g')} CO2e against the hungriest candidate"
            )
        return found
