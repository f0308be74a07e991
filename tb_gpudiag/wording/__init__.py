"""The words and number formats that users read, in one place."""
