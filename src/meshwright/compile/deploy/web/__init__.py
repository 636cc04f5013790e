"""A page that runs a model in a browser, with all that it needs in one folder."""
