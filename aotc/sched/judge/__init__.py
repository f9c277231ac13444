"""What groups cost, asked of the one cost: by deciders, for the candidates they make."""
