"""Text and tokens: documents, cleaning, deduplication, tokenizers, token stores, training order. Knows no JAX."""
