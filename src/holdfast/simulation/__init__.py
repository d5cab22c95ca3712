"""A simulated world for the protocols: one seed, one run, the very code of the product."""
