"""What a newcomer runs."""
