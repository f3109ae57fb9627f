"""How cells run over trees: under autograd, and with kernels that are printed from their formula."""
