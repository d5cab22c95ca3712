"""Running a network: the loop, its state directory, its progress."""
