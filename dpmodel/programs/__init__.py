"""Linear and cone programs with private parameters: one file per algorithm."""
