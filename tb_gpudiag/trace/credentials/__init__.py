"""Credentials in the text of a trace: found, and removed."""
