/* Changes of one shape in Avro or JSON: the bytes that never vary, and the columns between them. */

#include "accelerator.h"

typedef struct {
    char *data;
    Py_ssize_t size, room;
    PyObject *large; /* a bytes object, once `small` is too small */
    char small[1024];
} Buffer;

/* Return the place for `more` further bytes; NULL with an exception. */
static char *extend(Buffer *out, Py_ssize_t more) {
    if (more > out->room - out->size) {
        if (more > PY_SSIZE_T_MAX / 2 - out->size) return (char *)PyErr_NoMemory();
        Py_ssize_t room = out->size + more + out->size / 2;
        if (out->large) {
            if (_PyBytes_Resize(&out->large, room) < 0) return NULL;
        } else {
            if (!(out->large = PyBytes_FromStringAndSize(NULL, room))) return NULL;
            memcpy(PyBytes_AS_STRING(out->large), out->small, (size_t)out->size);
        }
        out->data = PyBytes_AS_STRING(out->large);
        out->room = room;
    }
    out->size += more;
    return out->data + out->size - more;
}

static int put(Buffer *out, const char *data, Py_ssize_t size) {
    char *to = extend(out, size);
    if (!to) return FAILED;
    memcpy(to, data, (size_t)size);
    return DONE;
}

static int put_long(Buffer *out, int64_t number) {
    char encoded[LONG_BYTES];
    return put(out, encoded, avro_long(encoded, number) - encoded);
}

/* The branch of a union that is not null, then a number. */
static int put_present(Buffer *out, int64_t number) {
    return put(out, "\x02", 1) == DONE ? put_long(out, number) : FAILED;
}

static PyObject *finish(Buffer *out) {
    if (!out->large) return PyBytes_FromStringAndSize(out->small, out->size);
    if (out->size != out->room && _PyBytes_Resize(&out->large, out->size) < 0) return NULL;
    PyObject *found = out->large;
    out->large = NULL;
    return found;
}

static int integer_of(const char *text, Py_ssize_t size, int64_t *number) {
    int is_negative = size > 0 && text[0] == '-';
    if (size > 18 || size == is_negative) return UNUSUAL;
    *number = 0;
    for (Py_ssize_t at = is_negative; at < size; at++) {
        if (text[at] < '0' || text[at] > '9') return UNUSUAL;
        *number = *number * 10 + (text[at] - '0');
    }
    if (is_negative) *number = -*number;
    return DONE;
}

/* The unscaled integer at scale 9 of a decimal, in two's complement. */
static int numeric_of(const char *text, Py_ssize_t size, unsigned __int128 *number) {
    int is_negative = size > 0 && text[0] == '-', whole = 0, places = -1;
    unsigned __int128 unscaled = 0;
    for (Py_ssize_t at = is_negative; at < size; at++) {
        if (text[at] == '.' && places < 0) {
            places = 0;
            continue;
        }
        if (text[at] < '0' || text[at] > '9') return UNUSUAL;
        if (places < 0 ? ++whole > 29 : ++places > 9) return UNUSUAL;
        unscaled = unscaled * 10 + (unsigned)(text[at] - '0');
    }
    if (whole + places < (places < 0 ? 0 : 1)) return UNUSUAL; /* without a digit */
    for (int place = places < 0 ? 0 : places; place < 9; place++) unscaled *= 10;
    *number = is_negative ? -unscaled : unscaled;
    return DONE;
}

/* Two's complement, in as few bytes as it needs. */
static int put_unscaled(Buffer *out, unsigned __int128 unscaled) {
    unsigned __int128 left = (__int128)unscaled < 0 ? ~unscaled : unscaled;
    int length = 1;
    for (; left > 127; left >>= 8) length++;
    if (put_present(out, length) != DONE) return FAILED;
    char *to = extend(out, length);
    if (!to) return FAILED;
    for (; length; unscaled >>= 8) to[--length] = (char)unscaled;
    return DONE;
}

static int put_text(Buffer *out, PyObject *text) {
    if (PyUnicode_IS_COMPACT_ASCII(text)) {
        Py_ssize_t size = PyUnicode_GET_LENGTH(text);
        return put_present(out, size) == DONE ? put(out, PyUnicode_DATA(text), size) : FAILED;
    }
    PyObject *data = PyUnicode_AsUTF8String(text);
    if (!data) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) return FAILED;
        PyErr_Clear();
        return UNUSUAL;
    }
    int status = put_present(out, PyBytes_GET_SIZE(data));
    if (status == DONE) status = put(out, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data));
    Py_DECREF(data);
    return status;
}

/* A text between quotation marks, if no character of it needs another notation. */
static int put_quoted(Buffer *out, PyObject *value) {
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(value, &size);
    if (!text) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) return FAILED;
        PyErr_Clear();
        return UNUSUAL;
    }
    for (Py_ssize_t at = 0; at < size; at++)
        if ((unsigned char)text[at] < ' ' || text[at] == '"' || text[at] == '\\') return UNUSUAL;
    char *to = extend(out, size + 2);
    if (!to) return FAILED;
    *to = to[size + 1] = '"';
    memcpy(to + 1, text, (size_t)size);
    return DONE;
}

enum {
    OTHER_FORM, FIXED, INT64_FORM, NUMERIC_FORM, STRING_FORM, DATE_FORM, TIMESTAMP_FORM, BOOL_FORM,
    JSON_FORM, JSON_INT64, JSON_NUMERIC, JSON_STRING, JSON_DATE, JSON_TIMESTAMP, JSON_BOOL, FORMS_END
};
static const char *const FORMS[] = {
    "", "fixed", "INT64", "NUMERIC", "STRING", "DATE", "TIMESTAMP", "BOOL",
    "JSON", "JSON INT64", "JSON NUMERIC", "JSON STRING", "JSON DATE", "JSON TIMESTAMP", "JSON BOOL"
};

/* Bytes that never vary, or a column's value: the place of its document, and what writes it. */
typedef struct {
    int form;
    Py_ssize_t document;
    PyObject *name; /* the column's, or the bytes */
    PyObject *write;
} Piece;

static int put_boolean(Buffer *out, int form, int is_true) {
    if (form == BOOL_FORM) return put(out, is_true ? "\2\1" : "\2\0", 2);
    if (form == JSON_BOOL) return is_true ? put(out, "true", 4) : put(out, "false", 5);
    return UNUSUAL;
}

static int put_value(Buffer *out, const Piece *piece, PyObject *value) {
    if (value == Py_None) return piece->form < JSON_FORM ? put(out, "\0", 1) : put(out, "null", 4);
    if (PyBool_Check(value)) return put_boolean(out, piece->form, value == Py_True);
    if (!PyUnicode_CheckExact(value)) return UNUSUAL;
    if (piece->form == STRING_FORM) return put_text(out, value);
    if (piece->form == JSON_STRING) return put_quoted(out, value);
    if (!PyUnicode_IS_COMPACT_ASCII(value)) return UNUSUAL;
    const char *text = PyUnicode_DATA(value);
    Py_ssize_t size = PyUnicode_GET_LENGTH(value);
    int64_t whole;
    unsigned __int128 unscaled;
    int nanoseconds;
    switch (piece->form) {
    case INT64_FORM: return integer_of(text, size, &whole) ? put_present(out, whole) : UNUSUAL;
    case NUMERIC_FORM: return numeric_of(text, size, &unscaled) ? put_unscaled(out, unscaled) : UNUSUAL;
    case JSON_INT64: /* no zero before another digit, and none with a sign */
        if (!integer_of(text, size, &whole) || (*text == '0' && size > 1) || (*text == '-' && text[1] == '0'))
            return UNUSUAL;
        return put(out, text, size);
    case JSON_NUMERIC: return numeric_of(text, size, &unscaled) ? put_quoted(out, value) : UNUSUAL;
    case JSON_DATE: return size == 10 && days_of(text, &whole) ? put_quoted(out, value) : UNUSUAL;
    case JSON_TIMESTAMP:
        return instant_of(text, size, &whole, &nanoseconds) ? put_quoted(out, value) : UNUSUAL;
    case DATE_FORM:
        return size == 10 && days_of(text, &whole) ? put_present(out, whole) : UNUSUAL;
    case TIMESTAMP_FORM:
        if (!instant_of(text, size, &whole, &nanoseconds) || nanoseconds % 1000) return UNUSUAL;
        return put_present(out, whole * 1000000 + nanoseconds / 1000);
    default: return UNUSUAL;
    }
}

static int put_piece(Buffer *out, const Piece *piece, PyObject *const *arguments) {
    if (piece->form == FIXED)
        return put(out, PyBytes_AS_STRING(piece->name), PyBytes_GET_SIZE(piece->name));
    PyObject *value = PyObject_GetItem(arguments[piece->document], piece->name);
    if (!value) return FAILED;
    int status = put_value(out, piece, value);
    if (status == UNUSUAL) {
        PyObject *written = PyObject_CallOneArg(piece->write, value);
        status = FAILED;
        if (written && PyBytes_Check(written))
            status = put(out, PyBytes_AS_STRING(written), PyBytes_GET_SIZE(written));
        else if (written)
            PyErr_SetString(PyExc_TypeError, "a field's writer did not return bytes");
        Py_XDECREF(written);
    }
    Py_DECREF(value);
    return status;
}

typedef struct {
    PyObject_VAR_HEAD
    vectorcallfunc call;
    Py_ssize_t key_pieces;
    Piece pieces[];
} ShapeWriter;

static PyObject *write_change(PyObject *self, PyObject *const *arguments, size_t flags, PyObject *names) {
    ShapeWriter *writer = (ShapeWriter *)self;
    if (PyVectorcall_NARGS(flags) != 6 || names || !PyBytes_Check(arguments[3]) ||
        !PyBytes_Check(arguments[4]) || !PyBytes_Check(arguments[5])) {
        PyErr_SetString(PyExc_TypeError, "three documents and three byte strings are expected");
        return NULL;
    }
    PyObject *parts[2] = {NULL, NULL}, *found = NULL;
    Py_ssize_t piece = 0, end = writer->key_pieces;
    for (int part = 0; part < 2; part++, end = Py_SIZE(self)) {
        Buffer out = {.data = out.small, .room = sizeof out.small};
        int status = DONE;
        for (; piece < end && status == DONE; piece++)
            status = put_piece(&out, &writer->pieces[piece], arguments);
        for (int place = 3; part == 1 && place < 6 && status == DONE; place++)
            status = put(&out, PyBytes_AS_STRING(arguments[place]), PyBytes_GET_SIZE(arguments[place]));
        if (status == DONE) parts[part] = finish(&out);
        Py_XDECREF(out.large);
        if (!parts[part]) break;
    }
    if (parts[1]) found = PyTuple_Pack(2, parts[0], parts[1]);
    Py_XDECREF(parts[0]); Py_XDECREF(parts[1]);
    return found;
}

static void free_writer(PyObject *self) {
    for (Py_ssize_t place = 0; place < Py_SIZE(self); place++) {
        Py_XDECREF(((ShapeWriter *)self)->pieces[place].name);
        Py_XDECREF(((ShapeWriter *)self)->pieces[place].write);
    }
    Py_TYPE(self)->tp_free(self);
}

PyTypeObject ShapeWriterType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tidegate_accelerator.ShapeWriter",
    .tp_basicsize = sizeof(ShapeWriter),
    .tp_itemsize = sizeof(Piece),
    .tp_dealloc = free_writer,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(ShapeWriter, call),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "Writes the changes of one shape: (keys, new, old, before, number, after) to (key, value).",
};

const char shape_writer_doc[] =
"shape_writer(key, value)\n--\n\n"
"Return the writer of one shape, from the pieces of its key and its value, each one a tuple:\n"
"('fixed', 0, bytes, None), or (form, place of the document, column, writer of all forms).";

PyObject *shape_writer(PyObject *Py_UNUSED(module), PyObject *arguments) {
    PyObject *lists[2];
    if (!PyArg_ParseTuple(arguments, "O!O!", &PyList_Type, &lists[0], &PyList_Type, &lists[1]))
        return NULL;
    Py_ssize_t key = PyList_GET_SIZE(lists[0]), size = key + PyList_GET_SIZE(lists[1]);
    ShapeWriter *writer = PyObject_NewVar(ShapeWriter, &ShapeWriterType, size);
    if (!writer) return NULL;
    memset(writer->pieces, 0, (size_t)size * sizeof(Piece));
    writer->call = write_change;
    writer->key_pieces = key;
    for (Py_ssize_t place = 0; place < size; place++) {
        Piece *piece = &writer->pieces[place];
        PyObject *one = place < key ? PyList_GET_ITEM(lists[0], place)
                                    : PyList_GET_ITEM(lists[1], place - key);
        const char *form;
        if (!PyTuple_Check(one)) {
            PyErr_SetString(PyExc_TypeError, "a piece of a shape is a tuple");
            goto failed;
        }
        if (!PyArg_ParseTuple(one, "snOO", &form, &piece->document, &piece->name, &piece->write)) {
            piece->name = piece->write = NULL;
            goto failed;
        }
        Py_INCREF(piece->name); Py_INCREF(piece->write);
        while (piece->form < FORMS_END && strcmp(FORMS[piece->form], form)) piece->form++;
        if (piece->form == FORMS_END || piece->document < 0 || piece->document > 2 ||
            (piece->form == FIXED && !PyBytes_Check(piece->name))) {
            PyErr_SetString(PyExc_ValueError, "a piece of a shape has another form");
            goto failed;
        }
    }
    return (PyObject *)writer;
failed:
    Py_DECREF(writer);
    return NULL;
}
