"""Device programs in time: fusion, memory, schedule."""
