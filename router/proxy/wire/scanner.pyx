# cython: language_level=3, wraparound=False, cdivision=True, initializedcheck=False, embedsignature=False
"""One pass over a head's lines, and the head that crosses: the compiled form of what head_lines.py does.

It holds no policy: KindTable names each line's kind, Action says what a kind's value is for, and a table of Crossing says
what becomes of it. It takes only what it is sure of; whatever else comes is left to the Python beside it, which alone refuses.

On the bounds of `p[...]`: a head is a bytes object, whose buffer has a NUL behind its last byte, at p[size]. Every loop here
stops at a NUL (no table lets it pass) or at an index below `size`, and every step over a byte was preceded by finding that
byte to be something else. tests/fuzz drives this, `make sanitize` with AddressSanitizer.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject_SetAttr
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

cdef enum:
    MAX_LINES = 64
    INLINE_LINES = 16        # more than most heads have; longer ones are allocated
    MAX_NAME = 255
    MAX_HEAD = 1 << 20       # offsets fit into 32 bits with room to spare
    MAX_KINDS = 64           # a set of kinds is one integer
    SLOTS = 1024
    MAX_PROBES = 8
    MAX_HOST = 320           # as in request_head.py
    MAX_LENGTH_DIGITS = 18   # as in head_lines.py; less than 2 ** 63
    MAX_ASKED = 8
    STACK = 4096

# What a kind's value is for; head_lines.Action has the same numbers.
cdef enum:
    ACTION_NOTHING = 0
    ACTION_UNSURE = 1
    ACTION_HOST = 2
    ACTION_LENGTH = 3
    ACTION_CODING = 4
    ACTION_CONNECTION = 5
    ACTION_ONCE = 6
    ACTION_FIRST = 7
    ACTION_ASKED = 8

# What becomes of a kind's lines; head_lines.Crossing has the same numbers.
cdef enum:
    CROSSING_AS_IT_CAME = 0
    CROSSING_NOT = 1
    CROSSING_TRIMMED = 2
    CROSSING_HOST = 3

cdef struct Line:
    uint32_t start           # of the line
    uint32_t value           # behind the white space before it
    uint32_t value_end       # before the white space behind it
    uint16_t name_size
    uint16_t kind

cdef struct Slot:
    const uint8_t* name      # kept alive by KnownNames.names
    uint32_t size            # 0: empty
    uint32_t kind

cdef uint8_t NAME[256]       # 1 for the bytes of a token (RFC 9110 §5.6.2)
cdef uint8_t TARGET[256]     # 1 for what request_head.py takes in a target
cdef uint8_t HOST[256]       # 1 for the bytes of a registered name or an IPv4 address


cdef void fill_tables() noexcept:
    cdef int c
    for c in b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz":
        NAME[c] = 1
    for c in b"._~!$&'()*+,;=%-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz":
        HOST[c] = 1
    for c in range(0x21, 0x100):
        TARGET[c] = c != 0x7F and c != 35


fill_tables()

cdef bytes GET = b"GET"
cdef bytes HEAD = b"HEAD"
cdef bytes POST = b"POST"
cdef bytes PUT = b"PUT"
cdef bytes PATCH = b"PATCH"
cdef bytes DELETE = b"DELETE"
cdef bytes OPTIONS = b"OPTIONS"

cdef str A_METHOD = "method"
cdef str A_TARGET = "target"
cdef str A_VERSION = "version"
cdef str A_SCAN = "scan"
cdef str A_HOST = "host"
cdef str A_HAS_HOST_LINE = "has_host_line"
cdef str A_ASKED = "asked"
cdef str A_CONTENT_LENGTH = "content_length"
cdef str A_HAS_BODY = "has_body"
cdef str A_IS_CHUNKED = "is_chunked"
cdef str A_KEEP_ALIVE = "keep_alive"
cdef str A_HAS_CONNECTION = "has_connection"
cdef str A_NOMINATED = "nominated"
cdef str A_STATUS = "status"
cdef str A_KINDS = "kinds"


# --- names ----------------------------------------------------------------------------------


cdef class KnownNames:
    """The kinds of header names by exact spelling: what the KindTable said, remembered where C finds it.

    Bounded, and a name that finds no slot within a few steps is asked for each time: strangers choose names.
    """

    cdef object kinds        # the KindTable
    cdef list names
    cdef Slot slots[SLOTS]

    def __cinit__(self, kinds, common):
        cdef int at
        self.kinds = kinds
        self.names = []
        for at in range(SLOTS):
            self.slots[at].size = 0
        for name in common:
            self.ask(<const uint8_t*>PyBytes_AS_STRING(<bytes?>name), <uint32_t>len(name))

    cdef inline int kind(self, const uint8_t* name, uint32_t size) except -1:
        """Returns the kind of a name of 1 to MAX_NAME bytes."""
        cdef uint32_t at = hash_of(name, size)
        cdef int probe
        for probe in range(MAX_PROBES):
            if self.slots[at].size == 0:
                break
            if self.slots[at].size == size and memcmp(self.slots[at].name, name, size) == 0:
                return <int>self.slots[at].kind
            at = (at + 1) & (SLOTS - 1)
        return self.ask(name, size)

    cdef int ask(self, const uint8_t* name, uint32_t size) except -1:
        cdef bytes spelling = PyBytes_FromStringAndSize(<const char*>name, size)
        cdef int kind = self.kinds[spelling]
        cdef uint32_t at = hash_of(name, size)
        cdef int probe
        if not 0 <= kind < MAX_KINDS:
            raise ValueError(f"kind {kind} of {spelling!r}")
        for probe in range(MAX_PROBES):
            if self.slots[at].size == 0:
                self.names.append(spelling)
                self.slots[at].name = <const uint8_t*>PyBytes_AS_STRING(spelling)
                self.slots[at].size = size
                self.slots[at].kind = <uint32_t>kind
                break
            at = (at + 1) & (SLOTS - 1)
        return kind


cdef inline uint32_t hash_of(const uint8_t* p, uint32_t n) noexcept nogil:
    # Reads p[0], p[n // 2] and p[n - 1]: n is at least 1.
    return (n * 37 + p[0] * 5 + p[n - 1] * 11 + p[n >> 1] * 3) & (SLOTS - 1)


# --- lines ----------------------------------------------------------------------------------


@cython.final
@cython.freelist(256)
cdef class Scan:
    """Where the lines of one head are, and of which kinds."""

    cdef bytes block
    cdef Line* lines
    cdef Line inline_lines[INLINE_LINES]
    cdef int count
    cdef uint32_t first      # where the first header line begins, behind the start line
    cdef uint32_t last       # where the empty line begins

    def __dealloc__(self):
        if self.lines != self.inline_lines:
            PyMem_Free(self.lines)

    def special(self):
        """Returns the lines that need a decision, as head_lines.special_lines() does."""
        cdef const char* p = PyBytes_AS_STRING(self.block)
        cdef list found = []
        cdef Line* line
        cdef int at
        for at in range(self.count):
            line = &self.lines[at]
            if line.kind:
                found.append((
                    line.kind,
                    PyBytes_FromStringAndSize(p + line.start, line.name_size),
                    PyBytes_FromStringAndSize(p + line.value, line.value_end - line.value),
                    at + 1,
                ))
        return found

    def crossing(self, bytes start, bytes crossings not None, bytes host not None, dict changes, bytes tail not None):
        """Returns the head that crosses, as head_lines.crossing() does."""
        if PyBytes_GET_SIZE(crossings) < MAX_KINDS:
            raise ValueError("a table of crossings has an entry for each kind")
        cdef bytes answer
        cdef Py_ssize_t room = self.room(start, host, changes, tail)
        cdef char stack[STACK]
        cdef char* buffer = &stack[0]
        cdef char* end
        if room > STACK:
            buffer = <char*>PyMem_Malloc(room)
            if buffer == NULL:
                raise MemoryError
        end = self.write(buffer, start, <const uint8_t*>PyBytes_AS_STRING(crossings), host, changes, tail)
        answer = PyBytes_FromStringAndSize(buffer, end - buffer)
        if buffer != &stack[0]:
            PyMem_Free(buffer)
        return answer

    cdef Py_ssize_t room(self, bytes start, bytes host, dict changes, bytes tail) except -1:
        """Returns more than what crosses can need, and finds every change to be one that write() can make.

        A line that is kept or trimmed grows by at most one byte, a space behind the colon; each may be the Host's.
        """
        cdef Py_ssize_t room = PyBytes_GET_SIZE(self.block) + PyBytes_GET_SIZE(tail) + 2
        room += self.count * (PyBytes_GET_SIZE(host) + 4)
        if start is not None:
            room += PyBytes_GET_SIZE(start) + 2
        if changes is not None:
            for line in changes.values():
                room += PyBytes_GET_SIZE(<bytes?>line) + 2
        return room

    cdef char* write(self, char* out, bytes start, const uint8_t* crossings, bytes host, dict changes, bytes tail):
        cdef const char* p = PyBytes_AS_STRING(self.block)
        cdef Line* line
        cdef uint32_t end
        cdef uint8_t how
        cdef int at
        if start is None:
            out = put(out, p, self.first)
        else:
            out = put(out, PyBytes_AS_STRING(start), PyBytes_GET_SIZE(start))
            out = put(out, b"\r\n", 2)
        for at in range(self.count):
            line = &self.lines[at]
            if changes is not None and at + 1 in changes:
                changed = changes[at + 1]
                if PyBytes_GET_SIZE(<bytes>changed):
                    out = put(out, PyBytes_AS_STRING(<bytes>changed), PyBytes_GET_SIZE(<bytes>changed))
                    out = put(out, b"\r\n", 2)
                continue
            how = crossings[line.kind]
            if how == CROSSING_AS_IT_CAME:
                end = self.lines[at + 1].start if at + 1 < self.count else self.last
                out = put(out, p + line.start, end - line.start)
            elif how != CROSSING_NOT:
                out = put(out, p + line.start, line.name_size)
                out = put(out, b": ", 2)
                if how == CROSSING_HOST:
                    out = put(out, PyBytes_AS_STRING(host), PyBytes_GET_SIZE(host))
                else:
                    out = put(out, p + line.value, line.value_end - line.value)
                out = put(out, b"\r\n", 2)
        return put(out, PyBytes_AS_STRING(tail), PyBytes_GET_SIZE(tail))


cdef inline char* put(char* out, const char* data, Py_ssize_t size) noexcept nogil:
    memcpy(out, data, size)
    return out + size


cdef int find_lines(const uint8_t* p, uint32_t at, uint32_t size, KnownNames known, Line* out, uint32_t* last) except -2:
    """Writes the lines of p[at:size]. Returns how many, -1 unless all are as they have to be and an empty one ends them."""
    cdef int count = 0
    cdef uint32_t start, stop, i
    cdef uint8_t bad, c
    cdef const void* found
    while True:
        if p[at] == 13:
            last[0] = at
            return count if at + 2 == size and p[at + 1] == 10 else -1
        if count == MAX_LINES:
            return -1
        start = at
        while NAME[p[at]]:
            at += 1
        if at == start or at - start > MAX_NAME or p[at] != 58:
            return -1
        out[count].start = start
        out[count].name_size = <uint16_t>(at - start)
        at += 1
        while p[at] == 32 or p[at] == 9:
            at += 1
        # `at` is at most `size`: the NUL there is no white space.
        found = memchr(p + at, 13, size - at)
        if found == NULL:
            return -1
        stop = <uint32_t>(<const uint8_t*>found - p)
        if p[stop + 1] != 10:
            return -1
        bad = 0
        for i in range(at, stop):
            c = p[i]
            bad |= ((c < 32) & (c != 9)) | (c == 127)
        if bad:
            return -1
        out[count].value = at
        i = stop
        while i > at and (p[i - 1] == 32 or p[i - 1] == 9):
            i -= 1
        out[count].value_end = i
        out[count].kind = <uint16_t>known.kind(p + start, out[count].name_size)
        at = stop + 2
        count += 1


cdef Scan keep(bytes block, Line* lines, int count, uint32_t first, uint32_t last):
    cdef Scan scan = Scan.__new__(Scan)
    scan.block = block
    scan.count = count
    scan.first = first
    scan.last = last
    if count <= INLINE_LINES:
        scan.lines = scan.inline_lines
    else:
        scan.lines = <Line*>PyMem_Malloc(count * sizeof(Line))
        if scan.lines == NULL:
            raise MemoryError
    memcpy(scan.lines, lines, count * sizeof(Line))
    return scan


cdef inline bytes value_of(const uint8_t* p, const Line* line):
    return PyBytes_FromStringAndSize(<const char*>p + line.value, line.value_end - line.value)


cdef inline bint is_value(const uint8_t* p, const Line* line, known):
    """Returns True when the value is equal to `known`, which may be any object."""
    cdef uint32_t size = line.value_end - line.value
    return (
        isinstance(known, bytes)
        and PyBytes_GET_SIZE(known) == size
        and memcmp(PyBytes_AS_STRING(<bytes>known), p + line.value, size) == 0
    )


cdef inline bytes value_or(const uint8_t* p, const Line* line, known):
    """Returns the value, as the very object `known` if that is equal."""
    return <bytes>known if is_value(p, line, known) else value_of(p, line)


# --- values ---------------------------------------------------------------------------------


cdef int64_t length_of(const uint8_t* p, const Line* line) noexcept nogil:
    """Returns a Content-Length, -1 for what isn't one."""
    cdef int64_t length = 0
    cdef uint32_t at
    if line.value == line.value_end or line.value_end - line.value > MAX_LENGTH_DIGITS:
        return -1
    for at in range(line.value, line.value_end):
        if not 48 <= p[at] <= 57:
            return -1
        length = length * 10 + (p[at] - 48)
    return length


cdef bint is_word(const uint8_t* p, uint32_t size, const char* word, uint32_t word_size) noexcept nogil:
    """Returns True when the bytes are the lower-case word in any case; words are letters and hyphens."""
    cdef uint32_t at
    if size != word_size:
        return False
    for at in range(size):
        if p[at] != <uint8_t>word[at] and (p[at] | 32) != <uint8_t>word[at]:
            return False
    return True


cdef bint is_host(const uint8_t* p, const Line* line) noexcept nogil:
    """Returns True for a name or an IPv4 address with or without a port; the Python knows IPv6 addresses too."""
    cdef uint32_t at = line.value, digits = 0
    while at < line.value_end and HOST[p[at]]:
        at += 1
    if at == line.value or line.value_end - line.value > MAX_HOST:
        return False
    if at == line.value_end:
        return True
    if p[at] != 58:
        return False
    at += 1
    while at < line.value_end and 48 <= p[at] <= 57:
        at += 1
        digits += 1
    return at == line.value_end and digits <= 5


cdef bytes method_of(const uint8_t* p, uint32_t size):
    """Returns a usual method, None for any other."""
    if size == 3:
        if memcmp(p, b"GET", 3) == 0:
            return GET
        if memcmp(p, b"PUT", 3) == 0:
            return PUT
    elif size == 4:
        if memcmp(p, b"POST", 4) == 0:
            return POST
        if memcmp(p, b"HEAD", 4) == 0:
            return HEAD
    elif size == 5:
        if memcmp(p, b"PATCH", 5) == 0:
            return PATCH
    elif size == 6:
        if memcmp(p, b"DELETE", 6) == 0:
            return DELETE
    elif size == 7:
        if memcmp(p, b"OPTIONS", 7) == 0:
            return OPTIONS
    return None


# --- scanners -------------------------------------------------------------------------------



cdef struct Found:
    uint64_t kinds           # a bit for each kind that came
    int64_t length           # -1: none
    int option               # of Connection: 0 none, 1 keep-alive, 2 close
    bint is_chunked
    Line* host
    Line* asked[MAX_ASKED]


cdef class Scanner:
    """What scanners of both directions share: how kinds are told apart, and what each is for."""

    cdef KnownNames known
    cdef uint8_t actions[MAX_KINDS]
    cdef int places[MAX_KINDS]     # of an ACTION_ASKED kind: its place in Asked
    cdef list attributes           # of an ACTION_ONCE or ACTION_FIRST kind: the head's attribute
    cdef object keep_alive_nominates
    cdef object close_nominates

    def __init__(self, kinds, common, actions, nominated):
        """`actions` has, for each kind, (Action, an attribute or a place); `nominated` is header_rules' function."""
        cdef int kind = 0
        self.known = KnownNames(kinds, common)
        self.attributes = []
        if len(actions) > MAX_KINDS:
            raise ValueError(f"{len(actions)} kinds; a set of kinds has room for {MAX_KINDS}")
        for kind in range(MAX_KINDS):
            self.actions[kind] = ACTION_UNSURE
            self.places[kind] = 0
        for kind, (action, where) in enumerate(actions):
            self.actions[kind] = action
            if action == ACTION_ASKED:
                if not 0 <= where < MAX_ASKED:
                    raise ValueError(f"place {where} in Asked")
                self.places[kind] = where
            self.attributes.append(where if isinstance(where, str) else None)
        self.keep_alive_nominates = nominated([b"keep-alive"])
        self.close_nominates = nominated([b"close"])

    cdef bint read_lines(self, const uint8_t* p, Line* lines, int count, Found* found):
        """Fills `found`. Returns False when a line is not for C to decide about."""
        cdef Line* line
        cdef uint64_t bit
        cdef uint8_t action
        cdef uint32_t size
        cdef int i
        found.kinds = 0
        found.length = -1
        found.option = 0
        found.is_chunked = False
        found.host = NULL
        for i in range(MAX_ASKED):
            found.asked[i] = NULL
        for i in range(count):
            line = &lines[i]
            if line.kind == 0:
                continue
            bit = <uint64_t>1 << line.kind
            action = self.actions[line.kind]
            size = line.value_end - line.value
            if action == ACTION_NOTHING:
                pass
            elif action == ACTION_FIRST:
                pass
            elif found.kinds & bit:
                return False    # given twice: an error, or a list to join
            elif action == ACTION_ASKED:
                if found.asked[self.places[line.kind]] != NULL:
                    return False
                found.asked[self.places[line.kind]] = line
            elif action == ACTION_HOST:
                if not is_host(p, line):
                    return False
                found.host = line
            elif action == ACTION_LENGTH:
                found.length = length_of(p, line)
                if found.length < 0 or found.is_chunked:
                    return False
            elif action == ACTION_CODING:
                # llhttp takes no white space behind it: p[value_end] is there, for a line has an end.
                if found.length >= 0 or size != 7 or memcmp(p + line.value, b"chunked\r", 8) != 0:
                    return False
                found.is_chunked = True
            elif action == ACTION_CONNECTION:
                if is_word(p + line.value, size, b"keep-alive", 10):
                    found.option = 1
                elif is_word(p + line.value, size, b"close", 5):
                    found.option = 2
                else:
                    return False
            elif action != ACTION_ONCE:
                return False
            found.kinds |= bit
        return not found.option or not names_itself(p, lines, count, found.option)

    cdef int set_shared(self, head, Found* found) except -1:
        """Sets what heads of both directions have, where it isn't the default."""
        if found.length >= 0:
            PyObject_SetAttr(head, A_CONTENT_LENGTH, found.length)
        elif found.is_chunked:
            PyObject_SetAttr(head, A_IS_CHUNKED, True)
        if found.option:
            PyObject_SetAttr(head, A_HAS_CONNECTION, True)
            if found.option == 2:
                PyObject_SetAttr(head, A_KEEP_ALIVE, False)
                PyObject_SetAttr(head, A_NOMINATED, self.close_nominates)
            else:
                PyObject_SetAttr(head, A_NOMINATED, self.keep_alive_nominates)
        return 0


cdef bint names_itself(const uint8_t* p, Line* lines, int count, int option) noexcept nogil:
    """Returns True when a header that would cross has the name that the Connection option takes out."""
    cdef const char* word = b"keep-alive" if option == 1 else b"close"
    cdef uint32_t size = 10 if option == 1 else 5
    cdef int i
    for i in range(count):
        if lines[i].kind == 0 and is_word(p + lines[i].start, lines[i].name_size, word, size):
            return True
    return False


@cython.final
cdef class RequestScanner(Scanner):
    """Reads request heads into RequestHead."""

    cdef object new_asked
    cdef int asked_count
    cdef uint64_t known_kinds

    def __init__(self, kinds, common, actions, nominated, new_asked, int asked_count, known):
        """`new_asked` makes an Asked of a tuple of `asked_count` values; `known` are the names of Known's values."""
        super().__init__(kinds, common, actions, nominated)
        if asked_count > MAX_ASKED:
            raise ValueError("Asked has more values than there is room for")
        self.new_asked = new_asked
        self.asked_count = asked_count
        self.known_kinds = 0
        for kind, name in enumerate(self.attributes):
            if name in known:
                self.known_kinds |= <uint64_t>1 << <int>kind

    def read(self, head, bytes block not None, known):
        """Fills `head` from a whole head. Returns False, and leaves it alone, for one that Python has to judge.

        What is equal in `known` (request_head.Known), which may be None, becomes the very same object.
        """
        cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(block)
        cdef Py_ssize_t length = PyBytes_GET_SIZE(block)
        cdef uint32_t size, at, method_size, target_size
        cdef uint32_t first, last = 0
        cdef Line lines[MAX_LINES]
        cdef Found found
        cdef int count
        cdef bytes method
        if length > MAX_HEAD:
            return False
        size = <uint32_t>length
        at = 0
        while 65 <= p[at] <= 90:
            at += 1
        method_size = at
        method = method_of(p, method_size)
        if method is None or p[at] != 32 or p[at + 1] != 47:
            return False
        at += 1
        while TARGET[p[at]]:
            at += 1
        target_size = at - method_size - 1
        if size - at < 11 or memcmp(p + at, b" HTTP/1.1\r\n", 11) != 0:
            return False
        first = at + 11
        count = find_lines(p, first, size, self.known, lines, &last)
        if count < 0 or not self.read_lines(p, lines, count, &found) or found.host == NULL:
            return False
        PyObject_SetAttr(head, A_METHOD, method)
        PyObject_SetAttr(head, A_TARGET, PyBytes_FromStringAndSize(<const char*>p + method_size + 1, target_size))
        PyObject_SetAttr(head, A_VERSION, 11)
        PyObject_SetAttr(head, A_SCAN, keep(block, lines, count, first, last))
        PyObject_SetAttr(head, A_KINDS, found.kinds)
        PyObject_SetAttr(head, A_HAS_HOST_LINE, True)
        self.set_values(head, p, lines, count, &found, known)
        self.set_shared(head, &found)
        if found.length > 0 or found.is_chunked:
            PyObject_SetAttr(head, A_HAS_BODY, True)
        return True

    cdef int set_values(self, head, const uint8_t* p, Line* lines, int count, Found* found, known) except -1:
        cdef uint64_t done = 0
        cdef uint8_t action
        cdef int i
        cdef bint is_asked = False, is_known
        PyObject_SetAttr(head, A_HOST, value_or(p, found.host, None if known is None else known.host))
        for i in range(count):
            action = self.actions[lines[i].kind] if lines[i].kind else ACTION_NOTHING
            if action == ACTION_ASKED:
                is_asked = True
            elif (action == ACTION_ONCE or action == ACTION_FIRST) and not done >> lines[i].kind & 1:
                done |= <uint64_t>1 << lines[i].kind
                name = self.attributes[lines[i].kind]
                is_known = known is not None and self.known_kinds >> lines[i].kind & 1
                PyObject_SetAttr(head, name, value_or(p, &lines[i], getattr(known, name) if is_known else None))
        if is_asked:
            PyObject_SetAttr(head, A_ASKED, self.asked_of(p, found, None if known is None else known.asked))
        return 0

    cdef object asked_of(self, const uint8_t* p, Found* found, known):
        cdef int place
        cdef list values
        cdef const Line* line
        if isinstance(known, tuple) and len(known) == self.asked_count:
            for place in range(self.asked_count):
                line = found.asked[place]
                value = (<tuple>known)[place]
                if line == NULL:
                    if value is not None:
                        break
                elif value is None or not is_value(p, line, value):
                    break
            else:
                return known
        values = []
        for place in range(self.asked_count):
            line = found.asked[place]
            values.append(None if line == NULL else value_of(p, line))
        return self.new_asked(values)


@cython.final
cdef class ResponseScanner(Scanner):
    """Reads response heads into ResponseHead."""

    def read(self, head, bytes block not None):
        """Fills `head` from a whole head. Returns False, and leaves it alone, for one that Python has to judge."""
        cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(block)
        cdef Py_ssize_t length = PyBytes_GET_SIZE(block)
        cdef uint32_t size, at, last = 0
        cdef uint8_t c
        cdef Line lines[MAX_LINES]
        cdef Found found
        cdef int count, status
        if length < 17 or length > MAX_HEAD or memcmp(p, b"HTTP/1.1 ", 9) != 0:
            return False
        size = <uint32_t>length
        # Interim responses and switches of protocol are rare, and have rules of their own.
        if not (50 <= p[9] <= 57 and 48 <= p[10] <= 57 and 48 <= p[11] <= 57):
            return False
        status = (p[9] - 48) * 100 + (p[10] - 48) * 10 + (p[11] - 48)
        at = 12
        if p[at] == 32:
            at += 1
            while True:
                c = p[at]
                if (c < 32 and c != 9) or c == 127:
                    break
                at += 1
        if p[at] != 13 or p[at + 1] != 10:
            return False
        count = find_lines(p, at + 2, size, self.known, lines, &last)
        if count < 0 or not self.read_lines(p, lines, count, &found) or (status == 204 and found.length >= 0):
            return False
        PyObject_SetAttr(head, A_STATUS, status)
        PyObject_SetAttr(head, A_VERSION, 11)
        PyObject_SetAttr(head, A_SCAN, keep(block, lines, count, at + 2, last))
        PyObject_SetAttr(head, A_KINDS, found.kinds)
        self.set_shared(head, &found)
        return True
