"""The suspender: suspends Sandboxes that no router has seen at work for as long as they say; a command of its own."""
