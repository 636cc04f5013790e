"""Text that `meshwright plan` prints about searches, pipelines and several machines."""
