"""Many small records, made fast."""
