#include "accelerator.h"

static PyMethodDef methods[] = {
    {"coordinates", (PyCFunction)(void (*)(void))coordinates, METH_FASTCALL, coordinates_doc},
    {"records", records_of, METH_VARARGS, records_doc},
    {"shape_writer", shape_writer, METH_VARARGS, shape_writer_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "tidegate_accelerator",
    "Tidegate's producer: taking responses apart and writing changes, compiled.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_tidegate_accelerator(void) {
    if (PyType_Ready(&ShapeWriterType) < 0) return NULL;
    PyObject *module = PyModule_Create(&definition);
    /* The producer uses a module of its own interface only. */
    if (module && PyModule_AddIntConstant(module, "INTERFACE", 3) < 0) Py_CLEAR(module);
    return module;
}
