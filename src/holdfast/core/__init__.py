"""The protocols, pure: no clock, no socket, no file, no Spark, no Arrow."""
