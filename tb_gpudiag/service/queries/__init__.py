"""SQL over the tables of traces, in processes of their own."""
