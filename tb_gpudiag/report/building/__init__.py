"""Facts and findings become one Report."""
