"""Area, energy and power of a design, from published figures and stated assumptions."""
