"""Repeated documents and paragraphs, near-duplicates, overlap with evaluation sets."""
