"""What can be done to a study. Each rule is handed a transaction, looks at the state, and adds events."""
