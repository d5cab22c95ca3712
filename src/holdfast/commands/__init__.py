"""The commands of ``holdfast`` that are about deployments."""
