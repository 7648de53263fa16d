"""What people and programs see of a study, from its state and its log."""
