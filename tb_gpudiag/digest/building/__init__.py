"""Builds a Digest from facts and the Report."""
