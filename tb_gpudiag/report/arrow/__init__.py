"""Facts and findings as Arrow tables, for SQL and data frames."""
