"""Linear and cone programs: their model, the taxonomy and its theorems, public points, and a file a mechanism."""
