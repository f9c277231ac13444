"""How numbers of few bits lie in bytes."""
