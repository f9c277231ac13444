"""GraphTurbo: sub-graphs split into instances, their order, places and moves."""
