/* Exceptions. Nothing here is on the way of a call that works. */
#include "native.h"

#include <stdarg.h>

PyObject *py_raise_text(py_state *state, tvm_status status, const char *text) {
    PyObject *error = PyObject_CallFunction(state->make_error, "is", (int)status, text);
    if (!error) return NULL;
    PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_DECREF(error);
    return NULL;
}

PyObject *py_raise(py_state *state, tvm_status status, const tvm_context *context) {
    return py_raise_text(state, status, tvm_message(context));
}

static PyObject *raise_list(py_state *state, tvm_status status, const char *format, va_list list) {
    PyObject *text = PyUnicode_FromFormatV(format, list);
    PyObject *bytes = text ? PyUnicode_AsUTF8String(text) : NULL;
    if (bytes) py_raise_text(state, status, PyBytes_AsString(bytes));
    Py_XDECREF(bytes);
    Py_XDECREF(text);
    return NULL;
}

PyObject *py_raise_format(py_state *state, tvm_status status, const char *format, ...) {
    va_list list;
    va_start(list, format);
    raise_list(state, status, format, list);
    va_end(list);
    return NULL;
}

bool py_is_interruption(void) {
    return PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception);
}

PyObject *py_raise_from(py_state *state, tvm_status status, const char *format, ...) {
    PyObject *type, *cause, *trace, *new_type, *error, *new_trace;
    va_list list;
    if (py_is_interruption()) return NULL;
    PyErr_Fetch(&type, &cause, &trace);
    PyErr_NormalizeException(&type, &cause, &trace);
    if (trace) PyException_SetTraceback(cause, trace);
    va_start(list, format);
    raise_list(state, status, format, list);
    va_end(list);
    PyErr_Fetch(&new_type, &error, &new_trace);
    PyErr_NormalizeException(&new_type, &error, &new_trace);
    if (error && cause) {
        PyException_SetCause(error, cause); /* takes it */
        cause = NULL;
    }
    PyErr_Restore(new_type, error, new_trace);
    Py_XDECREF(type);
    Py_XDECREF(cause);
    Py_XDECREF(trace);
    return NULL;
}

static PyObject *found(PyObject *value) {
    if (!value && !py_is_interruption()) PyErr_Clear();
    return value;
}

PyObject *py_attribute(PyObject *object, PyObject *name) {
    return found(PyObject_GetAttr(object, name));
}

PyObject *py_attribute_named(PyObject *object, const char *name) {
    return found(PyObject_GetAttrString(object, name));
}
