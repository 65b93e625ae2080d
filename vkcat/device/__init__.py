"""Devices: one typed surface, one module per backend."""
