"""Documents: their normal form, parts, and the attributes computed for them."""
