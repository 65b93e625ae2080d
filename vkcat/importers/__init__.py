"""Importers: other people's weights as vkcat models."""
