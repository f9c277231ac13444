"""Numbers of fewer bits in products: what stays stored so, and what is rounded on request."""
