"""Helpers that are not about bandits: validation, registries, random streams, files and tables."""
