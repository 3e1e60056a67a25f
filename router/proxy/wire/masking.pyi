"""The types of masking.pyx."""

def unmask(data: bytes, mask: bytes) -> bytes:
    """Returns the bytes without (or with) their mask. Raises ValueError for a mask that hasn't four bytes."""
