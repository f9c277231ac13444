"""Dynamic shapes (DietCode): candidates, votes and a dispatcher for the calls of a range."""
