"""``holdfast run``: a whole network in one process."""
