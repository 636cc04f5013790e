"""The devices of a training run: of this process, of all processes, or of a cluster."""
