"""Where tuples come from and where results go: sources, the ingestion they share, and sinks."""
