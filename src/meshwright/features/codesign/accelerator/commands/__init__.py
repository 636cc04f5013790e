"""The commands below `meshwright accelerator`."""
