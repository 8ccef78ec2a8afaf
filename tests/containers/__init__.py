"""Containers: bundles made by hand, and recorded schemas."""
