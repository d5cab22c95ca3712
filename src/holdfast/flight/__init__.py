"""Streams, heartbeats and control between processes, over Arrow Flight."""
