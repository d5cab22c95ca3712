"""Deployments: who runs where, and who starts, watches and stops them."""
