/* The place of a record's changes: their order keys, and the same coordinates in Avro. */

#include "accelerator.h"

enum { TIME_BYTES = 8, TAIL_BYTES = 20, TEXT_MAX = 256 };

/* Decimal digits, or two hexadecimal numbers with a hyphen between them. */
static int sequence_of(const char *text, Py_ssize_t size, uint64_t *high, uint64_t *low) {
    uint64_t *numbers[] = {high, low};
    const char *hyphen = memchr(text, '-', (size_t)size);
    *high = *low = 0;
    if (!hyphen) {
        if (size < 1 || size > 19) return UNUSUAL;
        for (Py_ssize_t at = 0; at < size; at++) {
            if (text[at] < '0' || text[at] > '9') return UNUSUAL;
            *low = *low * 10 + (uint64_t)(text[at] - '0');
        }
        return DONE;
    }
    const char *starts[] = {text, hyphen + 1}, *ends[] = {hyphen, text + size};
    for (int part = 0; part < 2; part++) {
        Py_ssize_t digits = ends[part] - starts[part];
        if (digits < 1 || digits > 16) return UNUSUAL;
        for (const char *at = starts[part]; at < ends[part]; at++) {
            int digit = *at >= '0' && *at <= '9'   ? *at - '0'
                        : *at >= 'a' && *at <= 'f' ? *at - 'a' + 10
                        : *at >= 'A' && *at <= 'F' ? *at - 'A' + 10
                                                   : -1;
            if (digit < 0) return UNUSUAL;
            *numbers[part] = *numbers[part] << 4 | (uint64_t)digit;
        }
    }
    return DONE;
}

static char *big_endian(char *to, uint64_t number, int bytes) {
    for (int place = bytes; place--; number >>= 8) to[place] = (char)number;
    return to + bytes;
}

char *avro_long(char *to, int64_t number) {
    uint64_t rest = ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
    for (; rest > 127; rest >>= 7) *to++ = (char)(rest | 128);
    *to++ = (char)rest;
    return to;
}

static char *avro_text(char *to, const char *text, Py_ssize_t size) {
    to = avro_long(to, size);
    memcpy(to, text, (size_t)size);
    return to + size;
}

static int is_usual(PyObject *text) {
    return PyUnicode_CheckExact(text) && PyUnicode_IS_COMPACT_ASCII(text) &&
           PyUnicode_GET_LENGTH(text) <= TEXT_MAX;
}

const char coordinates_doc[] =
"coordinates(commit_us, transaction, sequence, first, count)\n--\n\n"
"Return the order keys of a record's changes, time, transaction and sequence in Avro, and the numbers\n"
"of the changes in Avro; None for unusual coordinates.";

PyObject *coordinates(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given) {
    if (given != 5) {
        PyErr_SetString(PyExc_TypeError, "five arguments are expected");
        return NULL;
    }
    PyObject *transaction = arguments[1], *sequence = arguments[2];
    long long numbers[3];
    for (int place = 0; place < 3; place++) {
        int is_beyond;
        numbers[place] = PyLong_AsLongLongAndOverflow(arguments[place ? place + 2 : 0], &is_beyond);
        if (numbers[place] == -1 && PyErr_Occurred()) return NULL;
        if (is_beyond || numbers[place] < 0) Py_RETURN_NONE;
    }
    long long commit_us = numbers[0], first = numbers[1], count = numbers[2];
    uint64_t high, low;
    if (first > UINT32_MAX || count > UINT32_MAX || first + count > (1LL << 32) ||
        !is_usual(transaction) || !is_usual(sequence) ||
        !sequence_of(PyUnicode_DATA(sequence), PyUnicode_GET_LENGTH(sequence), &high, &low))
        Py_RETURN_NONE;
    const char *name = PyUnicode_DATA(transaction), *shown = PyUnicode_DATA(sequence);
    Py_ssize_t name_size = PyUnicode_GET_LENGTH(transaction), shown_size = PyUnicode_GET_LENGTH(sequence);
    if (memchr(name, 0, (size_t)name_size)) Py_RETURN_NONE;

    char avro[3 * LONG_BYTES + 2 * TEXT_MAX], key[TIME_BYTES + TEXT_MAX + 1 + TAIL_BYTES];
    char *end = avro_text(avro_text(avro_long(avro, commit_us), name, name_size), shown, shown_size);
    char *tail = big_endian(key, (uint64_t)commit_us, TIME_BYTES);
    memcpy(tail, name, (size_t)name_size);
    tail += name_size;
    *tail++ = 0;
    big_endian(big_endian(tail, high, 8), low, 8);

    PyObject *keys = PyList_New((Py_ssize_t)count), *places = PyList_New((Py_ssize_t)count);
    PyObject *before = PyBytes_FromStringAndSize(avro, end - avro), *found = NULL;
    if (!keys || !places || !before) goto ended;
    for (Py_ssize_t change = 0; change < count; change++) {
        char number[LONG_BYTES];
        big_endian(tail + 16, (uint64_t)(first + change), 4);
        PyObject *one = PyBytes_FromStringAndSize(key, tail + TAIL_BYTES - key);
        PyObject *place = PyBytes_FromStringAndSize(number, avro_long(number, first + change) - number);
        if (one) PyList_SET_ITEM(keys, change, one);
        if (place) PyList_SET_ITEM(places, change, place);
        if (!one || !place) goto ended;
    }
    found = PyTuple_Pack(3, keys, before, places);
ended:
    Py_XDECREF(keys);
    Py_XDECREF(before);
    Py_XDECREF(places);
    return found;
}
