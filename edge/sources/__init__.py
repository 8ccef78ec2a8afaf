"""One file a source framework: source -> model and golden samples."""
