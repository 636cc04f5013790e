"""What `meshwright plan` prints about searches and about several machines."""
