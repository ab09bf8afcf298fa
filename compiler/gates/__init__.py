"""What a candidate must show before a channel moves to it."""
