"""The tasks: one package each, found by name through :mod:`treemem.task`."""
