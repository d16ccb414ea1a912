"""What users call: fits of published numbers, their errors, and releases to be fitted. They stand above the planner."""
