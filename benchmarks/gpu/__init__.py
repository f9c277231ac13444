"""What ``benchmarks.cuda`` measures on a GPU, stage by stage."""
