"""Public numerics: what mathematics offers to every family. Nothing here knows what is private."""
