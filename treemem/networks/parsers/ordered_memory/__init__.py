"""The Ordered Memory: an attention over slots decides which of them a new element is composed with."""
