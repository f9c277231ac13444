"""Which products of a model may be rounded within a budget of error."""
