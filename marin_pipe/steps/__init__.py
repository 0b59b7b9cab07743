"""Ready-made steps: each binds a call of a library to a step. Nothing heavy is imported before a body runs."""
