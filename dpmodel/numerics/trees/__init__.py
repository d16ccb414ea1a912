"""Trees whose nodes are sums of their children."""
