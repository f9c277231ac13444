"""The last decider: how the statements of every stage are written, where that is not said."""
