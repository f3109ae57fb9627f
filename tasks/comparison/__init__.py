"""Every encoder on several tasks, with the same data, heads, trials and number of weights."""
