# cython: language_level=3, boundscheck=False, wraparound=False
"""The XOR with a mask of four bytes, eight bytes at a time: what unmasking.py does without a C compiler."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy


def unmask(bytes data not None, bytes mask not None, Py_ssize_t begin, Py_ssize_t end):
    """Returns data[begin:end] without (or with) its mask. Raises ValueError for a mask that hasn't four bytes, or for what lies outside of `data`."""
    if PyBytes_GET_SIZE(mask) != 4:
        raise ValueError("a mask has four bytes")
    if not 0 <= begin <= end <= PyBytes_GET_SIZE(data):
        raise ValueError("outside of the data")
    cdef Py_ssize_t size = end - begin
    cdef bytes result = PyBytes_FromStringAndSize(NULL, size)
    cdef const unsigned char *source = <const unsigned char *>PyBytes_AS_STRING(data) + begin
    cdef const unsigned char *key = <const unsigned char *>PyBytes_AS_STRING(mask)
    cdef unsigned char *target = <unsigned char *>PyBytes_AS_STRING(result)
    cdef uint32_t four
    cdef uint64_t eight, word
    cdef Py_ssize_t at = 0
    memcpy(&four, key, 4)
    eight = (<uint64_t>four << 32) | four
    while at + 8 <= size:
        memcpy(&word, source + at, 8)
        word ^= eight
        memcpy(target + at, &word, 8)
        at += 8
    while at < size:
        target[at] = source[at] ^ key[at & 3]
        at += 1
    return result
