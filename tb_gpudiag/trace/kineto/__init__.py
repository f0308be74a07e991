"""Kineto JSON: text to columns, also of texts that are damaged."""
