"""Steps compared with one another, and steps inferred where none were marked."""
