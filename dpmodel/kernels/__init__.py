"""Private algorithms, and pieces of them, that more than one family uses."""
