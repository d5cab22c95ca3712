"""Structured Streaming both ways: a query reads an output, or hands its rows to a source."""
