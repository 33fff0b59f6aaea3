/* Bytecode, loaded where it is called. On a GPU it stays loaded until the process ends: launches that have
 * not ended and graphs that were captured refer to its code. */
#include "native.h"

/* There is no object that is not whole: all is done where it is made, and nothing by __init__. */
static PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *words) {
    static char *names[] = {"", NULL};
    PyObject *bytes, *module = PyType_GetModule(type);
    if (!module || !PyArg_ParseTupleAndKeywords(args, words, "S:Program", names, &bytes)) return NULL;
    allocfunc allocate = PyType_GetSlot(type, Py_tp_alloc);
    PyObject *self = allocate(type, 0);
    if (!self) return NULL;
    py_program *program = (py_program *)self;
    program->module = Py_NewRef(module);
    program->state = PyModule_GetState(module);
    program->bytes = Py_NewRef(bytes);
    if (!py_program_on(program, PY_INTERPRETER)) Py_CLEAR(self);
    return self;
}

tvm_program *py_program_on(py_program *program, unsigned place) {
    if (program->on[place]) return program->on[place];
    tvm_context *context = py_context(program->state, place);
    if (!context) return NULL;
    char *bytes;
    Py_ssize_t size;
    PyBytes_AsStringAndSize(program->bytes, &bytes, &size);
    tvm_status status = tvm_load(context, bytes, (size_t)size, &program->on[place]);
    if (status) {
        py_raise(program->state, status, context);
        return NULL;
    }
    if (place != PY_INTERPRETER) Py_INCREF((PyObject *)program); /* for ever */
    return program->on[place];
}

static void program_free(PyObject *self) {
    py_program *program = (py_program *)self;
    PyTypeObject *type = Py_TYPE(self);
    tvm_program_free(program->on[PY_INTERPRETER]);
    Py_XDECREF(program->bytes);
    Py_XDECREF(program->module);
    freefunc release = PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *program_bytes(PyObject *self, void *unused) {
    (void)unused;
    return Py_NewRef(((py_program *)self)->bytes);
}

static PyObject *program_names(PyObject *self, void *unused) {
    (void)unused;
    tvm_program *program = ((py_program *)self)->on[PY_INTERPRETER];
    Py_ssize_t count = (Py_ssize_t)tvm_kernel_count(program);
    PyObject *names = PyTuple_New(count);
    for (Py_ssize_t i = 0; names && i < count; i++) {
        PyObject *name = PyUnicode_FromString(tvm_kernel_name(tvm_kernel_at(program, (size_t)i)));
        if (!name || PyTuple_SetItem(names, i, name)) Py_CLEAR(names);
    }
    return names;
}

static PyObject *program_origin(PyObject *self, PyObject *device) {
    py_program *program = (py_program *)self;
    int place = py_place_of(program->state, device);
    if (place < 0) return NULL;
    return PyUnicode_FromString(program->on[place] ? tvm_code_origin(program->on[place]) : "");
}

static PyGetSetDef program_attributes[] = {
    {"bytes", program_bytes, NULL, "The bytecode, vbc(5).", NULL},
    {"names", program_names, NULL, "The names of its kernels, then those of its entries.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyMethodDef program_methods[] = {
    {"origin", program_origin, METH_O,
     "origin($self, device, /)\n--\n\n"
     "Where its code there comes from: the cache, a compiler; \"\" before the first launch."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot program_slots[] = {
    {Py_tp_new, program_new},
    {Py_tp_dealloc, program_free},
    {Py_tp_getset, program_attributes},
    {Py_tp_methods, program_methods},
    {Py_tp_doc, "Program(bytes, /)\n--\n\nBytecode that has been verified."},
    {0, NULL}};

PyType_Spec py_program_spec = {.name = "tilusvm._native.Program",
                               .basicsize = sizeof(py_program),
                               .flags = Py_TPFLAGS_DEFAULT,
                               .slots = program_slots};
