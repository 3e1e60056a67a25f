"""The types of masking.pyx."""

def unmask(data: bytes, mask: bytes, begin: int, end: int) -> bytes:
    """Returns data[begin:end] without (or with) its mask. Raises ValueError for a mask that hasn't four bytes, or for what lies outside of `data`."""
