"""What a program needs: operations and live memory, in closed form."""

from meshwright.cost.liveness import peak_bytes
from meshwright.cost.work import program_work

__all__ = ["peak_bytes", "program_work"]
