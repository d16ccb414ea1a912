"""Where private rows lie that no single array holds: blocks in memory, in files, on workers."""
