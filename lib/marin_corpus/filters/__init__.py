"""Facts about documents, written as attributes, and `consolidate`, which acts on them."""
