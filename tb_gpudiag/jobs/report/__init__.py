"""The report on a job: its messages, and the document that text, Markdown and HTML show."""
