"""Trees from and to DGL, networkx, PyG and sympy."""
