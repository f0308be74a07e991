"""Why a job hangs, by the dumps of its ranks."""
