"""Whether values that scripts read from the card are followed as they would be there."""
