"""A gallery of models as people write them, each with its natural private parts: run, and held to its statements."""
