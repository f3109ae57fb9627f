"""Generation of true and false equations."""
