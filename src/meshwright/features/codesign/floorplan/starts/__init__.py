"""Legal starts of a placement: free places, legalisation, forces on soft macros."""
