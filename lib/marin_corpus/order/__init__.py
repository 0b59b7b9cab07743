"""The training order, a pure function of configuration, seed and step."""
