"""edgewright: one source model in, tailored and proven bundles for every edge target out."""

__version__ = "0.1.0"
