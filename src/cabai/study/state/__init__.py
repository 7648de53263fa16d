"""What a study has come to: the state after the events of its log."""
