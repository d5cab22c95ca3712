"""What processes keep on disk, and how: logs of streams, states, ledgers."""
