"""The history of the tables, one file a step, run by Alembic when a storage is opened."""
