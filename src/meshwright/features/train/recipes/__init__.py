"""The recipe (TOML file) of a training run, and the model and tactics that it names."""
