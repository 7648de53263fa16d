"""Where studies are stored: their recipes, and everything that ever happened to them, in a database."""
