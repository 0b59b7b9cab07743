"""Batches of tokens in training order."""
