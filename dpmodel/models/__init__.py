"""What planner and conductor know of a family of problems: one contract, and one file for each family."""
