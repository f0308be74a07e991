"""Jobs written by somebody who knew neither the rules nor this project, kept as they came."""
