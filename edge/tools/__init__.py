"""One file an outside tool, found once, with its version."""
