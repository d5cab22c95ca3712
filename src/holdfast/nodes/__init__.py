"""The processes of a deployment: entry points, replicas and clients, and what they share."""
