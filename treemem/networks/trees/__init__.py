"""Networks over given trees."""
