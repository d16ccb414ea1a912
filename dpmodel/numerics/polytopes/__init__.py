"""Public polyhedra: minimising, projecting and choosing points over them."""
