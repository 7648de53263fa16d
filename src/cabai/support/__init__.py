"""What is not about bandits: validation, registries, random streams, files and tables."""
