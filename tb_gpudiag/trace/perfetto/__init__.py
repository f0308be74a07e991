"""Read Perfetto's binary traces, as torch writes them (`.pftrace`)."""
