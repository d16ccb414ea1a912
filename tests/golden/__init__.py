"""What users get, frozen: for models of every family at three budgets the mechanism that is chosen, the noise that is
drawn, what the statement says and, with the solvers' versions recorded in the file alone, what is released.

One JSON file a family, one case a line. ``python -m tests.golden.write [family]`` writes them anew: a change that
does so says in its commit which lines changed and why.
"""
