"""The token store: raw token files with an index, read by memmap or by ranges."""
