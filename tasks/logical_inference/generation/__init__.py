"""Generation of pairs of formulas with their relation."""
