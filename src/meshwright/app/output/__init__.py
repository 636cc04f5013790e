"""What all output shares: numbers with units, files, progress, collapsed lines."""
