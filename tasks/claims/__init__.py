"""The page of claims: what the papers say of their networks, beside the records of all tasks."""
