"""Test arms until a study stops: functions, commands of a study file, datasets."""
