"""Trees as text and nested data: parsers, printers and readers of records."""
