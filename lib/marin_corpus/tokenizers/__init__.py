"""Tokenizers: training, loading, encoding; the chat format."""
