/* Two steps of the producer, compiled: taking responses apart, and writing changes in Avro and JSON.

   Only the usual form of anything is read here.  For every other one a function says so, and the
   caller's Python code reads the same bytes: it alone decides what is refused, and with which error.
   Nothing is kept between calls. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>

enum { FAILED = -1, UNUSUAL = 0, DONE = 1 }; /* FAILED: a Python exception is set. */

/* YYYY-MM-DD as days since 1970; the text has ten bytes at least. */
int days_of(const char *text, int64_t *days);

/* YYYY-MM-DDTHH:MM:SS[.f]Z, with one to nine digits of fraction, as seconds since 1970. */
int instant_of(const char *text, Py_ssize_t size, int64_t *seconds, int *nanoseconds);

/* A number in Avro, of LONG_BYTES at most; return where it ends. */
enum { LONG_BYTES = 10 };
char *avro_long(char *to, int64_t number);

extern const char coordinates_doc[], records_doc[], shape_writer_doc[];
extern PyTypeObject ShapeWriterType;
PyObject *coordinates(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *records_of(PyObject *module, PyObject *arguments);
PyObject *shape_writer(PyObject *module, PyObject *arguments);
