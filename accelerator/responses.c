/* The rows of a PartialResultSet, taken apart without a copy of anything but what is returned. */

#include "accelerator.h"

typedef struct { const unsigned char *at, *end; } Span;

/* ---------------------------------------------------------------- serialised values */

enum { TEXT = 0x1A, LIST = 0x32, ELEMENT = 0x0A }; /* tags of a Value and of a list's elements */

/* Read a length, and as many bytes. */
static int take(Span *in, Span *out) {
    size_t length = 0;
    for (int shift = 0; shift < 28 && in->at < in->end; shift += 7) {
        unsigned char byte = *in->at++;
        length |= (size_t)(byte & 127) << shift;
        if (byte < 128) {
            if (length > (size_t)(in->end - in->at)) return UNUSUAL;
            *out = (Span){in->at, in->at + length};
            in->at += length;
            return DONE;
        }
    }
    return UNUSUAL;
}

static int content(Span value, int tag, Span *out) {
    if (value.at == value.end || *value.at++ != tag) return UNUSUAL;
    return take(&value, out) && value.at == value.end;
}

static int is_null(Span value) {
    return value.end - value.at == 2 && value.at[0] == 0x08 && value.at[1] == 0;
}

/* An array; NULL counts as empty. */
static int array(Span value, Span *out) {
    if (!is_null(value)) return content(value, LIST, out);
    *out = (Span){value.end, value.end};
    return DONE;
}

static int next_element(Span *list, Span *value) {
    return list->at < list->end && *list->at++ == ELEMENT && take(list, value);
}

/* ---------------------------------------------------------------- responses to records */

enum { KIND_DATA = 1, KIND_OTHER };                                    /* of a ChangeRecord */
enum { REPEATED = 1, TIMESTAMP_AT, SEQUENCE_AT, TRANSACTION_AT, MODS_AT, OWN_END }; /* of a record */
enum { KEYS_AT = 1, NEW_AT, OLD_AT, PARTS_END };                       /* of a mod */

/* The role of each field of a struct, a byte each, 0 for a field that is not read. */
typedef struct {
    const unsigned char *kinds, *data, *mod;
    Py_ssize_t kinds_size, data_size, mod_size;
    PyObject *loads;
    PyTypeObject *mod_type;
} Layout;

static int read_document(Span value, PyObject *loads, PyObject **out) {
    Span text;
    if (is_null(value)) return (*out = PyDict_New()) ? DONE : FAILED;
    if (!content(value, TEXT, &text)) return UNUSUAL;
    PyObject *bytes = PyBytes_FromStringAndSize((const char *)text.at, text.end - text.at);
    if (!bytes) return FAILED;
    *out = PyObject_CallOneArg(loads, bytes);
    Py_DECREF(bytes);
    if (!*out) {
        if (!PyErr_ExceptionMatches(PyExc_ValueError)) return FAILED;
        PyErr_Clear();
        return UNUSUAL;
    }
    if (PyDict_CheckExact(*out)) return DONE;
    Py_CLEAR(*out);
    return UNUSUAL;
}

static int read_mod(Span value, const Layout *layout, PyObject **out) {
    Span fields, field, parts[PARTS_END];
    if (!content(value, LIST, &fields)) return UNUSUAL;
    for (Py_ssize_t place = 0; place < layout->mod_size; place++) {
        if (!next_element(&fields, &field)) return UNUSUAL;
        parts[layout->mod[place]] = field;
    }
    if (fields.at != fields.end) return UNUSUAL;
    PyObject *three = PyTuple_New(3);
    if (!three) return FAILED;
    int status = DONE;
    for (int part = KEYS_AT; part <= OLD_AT && status == DONE; part++) {
        PyObject *document = NULL;
        status = read_document(parts[part], layout->loads, &document);
        if (status == DONE) PyTuple_SET_ITEM(three, part - KEYS_AT, document);
    }
    if (status == DONE) {
        PyObject *arguments = PyTuple_Pack(1, three);
        *out = arguments ? PyTuple_Type.tp_new(layout->mod_type, arguments, NULL) : NULL;
        Py_XDECREF(arguments);
        if (!*out) status = FAILED;
    }
    Py_DECREF(three);
    return status;
}

static int read_mods(Span value, const Layout *layout, PyObject **out) {
    Span mods, mod;
    if (!array(value, &mods)) return UNUSUAL;
    Py_ssize_t count = 0;
    for (Span left = mods; left.at < left.end; count++)
        if (!next_element(&left, &mod)) return UNUSUAL;
    PyObject *found = PyTuple_New(count);
    if (!found) return FAILED;
    int status = DONE;
    for (Py_ssize_t place = 0; place < count && status == DONE; place++) {
        PyObject *one = NULL;
        next_element(&mods, &mod);
        status = read_mod(mod, layout, &one);
        if (status == DONE) PyTuple_SET_ITEM(found, place, one);
    }
    if (status == DONE) *out = found;
    else Py_DECREF(found);
    return status;
}

static int add_record(Span fields, const Layout *layout, PyObject *records) {
    Span own[OWN_END], text[OWN_END], field, left = fields;
    Py_ssize_t size = 0;
    for (Py_ssize_t place = 0; place < layout->data_size; place++) {
        const unsigned char *from = left.at;
        if (!next_element(&left, &field)) return UNUSUAL;
        if (layout->data[place] == REPEATED) size += left.at - from;
        else own[layout->data[place]] = field;
    }
    if (left.at != left.end) return UNUSUAL;
    for (int role = TIMESTAMP_AT; role <= TRANSACTION_AT; role++)
        if (!content(own[role], TEXT, &text[role])) return UNUSUAL;
    int64_t seconds;
    int nanoseconds;
    Span *time = &text[TIMESTAMP_AT];
    /* Within these bounds nanoseconds fit 64 bits: the years 1682 to 2255. */
    if (!instant_of((const char *)time->at, time->end - time->at, &seconds, &nanoseconds) ||
        seconds < -9000000000 || seconds > 9000000000)
        return UNUSUAL;
    PyObject *repeated = NULL, *sequence = NULL, *transaction = NULL, *mods = NULL;
    int status = read_mods(own[MODS_AT], layout, &mods);
    if (status == DONE) {
        status = FAILED;
        sequence = PyUnicode_DecodeUTF8((const char *)text[SEQUENCE_AT].at,
                                        text[SEQUENCE_AT].end - text[SEQUENCE_AT].at, NULL);
        transaction = sequence ? PyUnicode_DecodeUTF8(
            (const char *)text[TRANSACTION_AT].at,
            text[TRANSACTION_AT].end - text[TRANSACTION_AT].at, NULL) : NULL;
        if (transaction && (repeated = PyBytes_FromStringAndSize(NULL, size))) {
            char *to = PyBytes_AS_STRING(repeated);
            left = fields;
            for (Py_ssize_t place = 0; place < layout->data_size; place++) {
                const unsigned char *from = left.at;
                next_element(&left, &field);
                if (layout->data[place] != REPEATED) continue;
                memcpy(to, from, (size_t)(left.at - from));
                to += left.at - from;
            }
            PyObject *record = Py_BuildValue("LOOOO", (long long)(seconds * 1000000000 + nanoseconds),
                                             sequence, transaction, repeated, mods);
            if (record && PyList_Append(records, record) == 0) status = DONE;
            Py_XDECREF(record);
        } else if (PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
            PyErr_Clear();
            status = UNUSUAL;
        }
    }
    Py_XDECREF(repeated); Py_XDECREF(sequence); Py_XDECREF(transaction); Py_XDECREF(mods);
    return status;
}

static int add_row(Span row, const Layout *layout, PyObject *records) {
    Span change_records, change_record, kinds, kind, other, data = {NULL, NULL}, record, fields;
    Py_ssize_t before = PyList_GET_SIZE(records);
    if (!array(row, &change_records)) return UNUSUAL;
    while (change_records.at < change_records.end) {
        if (!next_element(&change_records, &change_record) || !content(change_record, LIST, &kinds))
            return UNUSUAL;
        for (Py_ssize_t place = 0; place < layout->kinds_size; place++) {
            if (!next_element(&kinds, &kind)) return UNUSUAL;
            if (layout->kinds[place] == KIND_DATA) {
                if (!array(kind, &data)) return UNUSUAL;
            } else if (layout->kinds[place] == KIND_OTHER) {
                if (!array(kind, &other) || other.at != other.end) return UNUSUAL;
            }
        }
        if (kinds.at != kinds.end) return UNUSUAL;
        while (data.at < data.end) {
            if (!next_element(&data, &record) || !content(record, LIST, &fields)) return UNUSUAL;
            int status = add_record(fields, layout, records);
            if (status != DONE) return status;
        }
    }
    return PyList_GET_SIZE(records) > before ? DONE : UNUSUAL; /* a row without a record */
}

/* Move past a field of the message; `row` is set for a value and empty for a field that is not read.
   An unfinished value is unusual. */
static int next_row(Span *message, Span *row) {
    Span skipped;
    *row = (Span){NULL, NULL};
    switch (*message->at++) {
    case 0x12: return take(message, row);
    case 0x0A: case 0x22: case 0x2A: /* metadata, which the caller has, resume_token, stats */
        return take(message, &skipped);
    case 0x48: return message->at < message->end && *message->at++ < 128; /* last */
    default: return UNUSUAL;
    }
}

const char records_doc[] =
"records(message, kinds, data, mod, loads, mod_type)\n--\n\n"
"Return what the rows of a response hold: a tuple (nanoseconds, sequence, transaction, repeated\n"
"fields, mods) for each data change record, and the bytes of each row of another form.\n"
"None for a response that is not made of values alone.";

PyObject *records_of(PyObject *Py_UNUSED(module), PyObject *arguments) {
    Py_buffer message;
    Layout layout;
    PyObject *records = NULL;
    if (!PyArg_ParseTuple(arguments, "y*y#y#y#OO!", &message, &layout.kinds, &layout.kinds_size,
                          &layout.data, &layout.data_size, &layout.mod, &layout.mod_size,
                          &layout.loads, &PyType_Type, &layout.mod_type))
        return NULL;
    /* A role that is missing would leave its span unset, and one out of range would be written
       beyond the array. */
    int roles = 0;
    for (Py_ssize_t at = 0; at < layout.data_size; at++)
        roles |= layout.data[at] < OWN_END ? 1 << layout.data[at] : 1 << 16;
    for (Py_ssize_t at = 0; at < layout.mod_size; at++)
        roles |= layout.mod[at] < PARTS_END ? 256 << layout.mod[at] : 1 << 16;
    if ((roles & ~0x103) != 0xE3C || !PyType_IsSubtype(layout.mod_type, &PyTuple_Type)) {
        PyErr_SetString(PyExc_ValueError, "the roles of a layout are not complete");
        goto end;
    }
    Span all = {message.buf, (const unsigned char *)message.buf + message.len}, row;
    for (Span left = all; left.at < left.end;)
        if (!next_row(&left, &row)) {
            records = Py_NewRef(Py_None);
            goto end;
        }
    if (!(records = PyList_New(0))) goto end;
    while (all.at < all.end) {
        next_row(&all, &row);
        if (!row.at) continue;
        Py_ssize_t before = PyList_GET_SIZE(records);
        int status = add_row(row, &layout, records);
        if (status == UNUSUAL) {
            status = FAILED;
            PyObject *bytes = PyBytes_FromStringAndSize((const char *)row.at, row.end - row.at);
            if (bytes && PyList_SetSlice(records, before, PyList_GET_SIZE(records), NULL) == 0 &&
                PyList_Append(records, bytes) == 0)
                status = DONE;
            Py_XDECREF(bytes);
        }
        if (status == FAILED) {
            Py_CLEAR(records);
            goto end;
        }
    }
end:
    PyBuffer_Release(&message);
    return records;
}
