"""Cells over trees on CUDA: Triton kernels that are printed from the cells' formulas."""
