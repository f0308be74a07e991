"""A Report as text, Markdown and HTML."""
