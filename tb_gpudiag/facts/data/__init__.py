"""Tables: what names mean, kept apart from the code that looks them up."""
