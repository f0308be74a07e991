"""Files of a log directory: which there are, what each one is, and its bytes; local and remote."""
