"""Sections of the document, built from Reports."""
