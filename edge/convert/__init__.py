"""One file a step: model -> artifact."""
