"""The target `web`: a page that runs a model, with all files that it needs."""
