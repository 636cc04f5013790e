"""The recipe of a run: its file, and the model, optimizer and tactics that it names."""
