/* Graphs of launches: names and descriptions go to the library, which checks them. Kernels, and the objects
 * of tensors, are held as long as the graph. */
#include "native.h"

#include <stdlib.h>

typedef struct py_graph {
    PyObject_HEAD py_state *state;
    tvm_graph *graph; /* NULL: closed */
    unsigned place;
    PyObject *name;             /* bytes */
    PyObject *kernels;          /* a list */
    PyObject *tensors;          /* a dictionary: the objects by their names */
    const py_exchange_api *api; /* of a tensor on a GPU that has one */
    bool has_run;
    void *stream; /* of the last launch, which waits for those before it */
} py_graph;

static PyObject *none_or_raise(const py_graph *graph, tvm_status status) {
    return status ? py_raise(graph->state, status, graph->state->contexts[graph->place]) : Py_NewRef(Py_None);
}

static bool is_open(const py_graph *graph) {
    if (!graph->graph) py_raise_text(graph->state, TVM_USAGE, "the graph is closed");
    return graph->graph != NULL;
}

/* ---- making and freeing ---- */

/* A scalar whose type is not known: the library refuses a float in an integer's place. */
static int any_value(PyObject *object, tvm_value *value) {
    *value = (tvm_value){.f = PyFloat_AsDouble(object)};
    if (value->f == -1.0 && PyErr_Occurred()) return -1;
    PyObject *number = PyIndex_Check(object) ? PyNumber_Index(object) : NULL;
    if (number) value->i = PyLong_AsLongLong(number);
    Py_XDECREF(number);
    return PyErr_Occurred() ? -1 : 0;
}

/* A graph of a text; scalars: a dictionary. */
static int assemble_graph(py_graph *graph, tvm_context *context, PyObject *source) {
    tvm_graph_argument arguments[PY_MOST_PARAMS];
    const char *text, *name;
    Py_ssize_t length, at = 0;
    size_t count = 0;
    PyObject *defines, *folders, *scalars, *key, *value, *keys = PyList_New(0);
    py_text_options options = {0};
    int failed = !keys || !PyTuple_Check(source) ||
                 !PyArg_ParseTuple(source, "s#sOOO!", &text, &length, &name, &defines, &folders, &PyDict_Type,
                                   &scalars);
    if (!failed) failed = py_text_options_take(name, defines, folders, &options);
    while (!failed && PyDict_Next(scalars, &at, &key, &value)) {
        PyObject *bytes = PyUnicode_AsUTF8String(key);
        failed = !bytes || PyList_Append(keys, bytes) || count == PY_MOST_PARAMS ||
                 any_value(value, &arguments[count].value);
        if (!failed) arguments[count++].name = PyBytes_AsString(bytes); /* the list has it */
        Py_XDECREF(bytes);
    }
    if (failed && !PyErr_Occurred())
        py_raise_text(graph->state, TVM_ARGUMENT, "no text, or too many scalars");
    if (!failed) {
        tvm_status status = tvm_graph_assemble(context, text, (size_t)length, &options.options, arguments,
                                               count, &graph->graph);
        if (status) py_raise(graph->state, status, context);
        failed = status != TVM_OK;
    }
    py_text_options_free(&options);
    Py_XDECREF(keys);
    return failed ? -1 : 0;
}

/* source: None, or of a text (text, file, defines, folders, scalars). */
static PyObject *graph_new(PyTypeObject *type, PyObject *args, PyObject *words) {
    static char *names[] = {"", "", "", NULL};
    const char *name;
    PyObject *device, *source, *module = PyType_GetModule(type);
    if (!module || !PyArg_ParseTupleAndKeywords(args, words, "sOO:Graph", names, &name, &device, &source))
        return NULL;
    py_state *state = PyModule_GetState(module);
    int place = py_place_of(state, device);
    tvm_context *context = place < 0 ? NULL : py_context(state, (unsigned)place);
    allocfunc allocate = PyType_GetSlot(type, Py_tp_alloc);
    PyObject *self = context ? allocate(type, 0) : NULL;
    if (!self) return NULL;
    py_graph *graph = (py_graph *)self;
    graph->state = state;
    graph->place = (unsigned)place;
    graph->name = PyBytes_FromString(name);
    graph->kernels = PyList_New(0);
    graph->tensors = PyDict_New();
    bool failed = !graph->name || !graph->kernels || !graph->tensors;
    if (!failed && source != Py_None) {
        failed = assemble_graph(graph, context, source);
    } else if (!failed) {
        tvm_status status = tvm_graph_create(context, name, &graph->graph);
        if (status) py_raise(state, status, context);
        failed = status != TVM_OK;
    }
    if (failed) Py_CLEAR(self);
    return self;
}

/* Of a graph that may still run on a GPU the memory stays, and what it holds: close() waits and frees it. */
static void graph_free(PyObject *self) {
    py_graph *graph = (py_graph *)self;
    PyTypeObject *type = Py_TYPE(self);
    bool runs = graph->graph && graph->has_run && graph->place != PY_INTERPRETER;
    if (!runs) {
        tvm_graph_free(graph->graph);
        Py_XDECREF(graph->kernels);
        Py_XDECREF(graph->tensors);
    }
    Py_XDECREF(graph->name);
    freefunc release = PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *graph_close(PyObject *self, PyObject *unused) {
    py_graph *graph = (py_graph *)self;
    tvm_graph *closed = graph->graph;
    tvm_context *context = graph->state->contexts[graph->place];
    tvm_status status = TVM_OK;
    (void)unused;
    graph->graph = NULL;
    if (!closed) Py_RETURN_NONE;
    Py_BEGIN_ALLOW_THREADS;
    if (graph->has_run) status = tvm_synchronize(context, graph->stream);
    tvm_graph_free(closed);
    Py_END_ALLOW_THREADS;
    PyDict_Clear(graph->tensors);
    return none_or_raise(graph, status);
}

/* ---- tensors ---- */

/* For messages of what takes tensors, which name a kernel and a parameter. */
static int take(py_graph *graph, PyObject *name, PyObject *object, bool written, py_tensor *tensor) {
    py_kernel who = {.state = graph->state, .name = PyBytes_AsString(graph->name)};
    const py_param param = {.name = name, .info = {.type = "the graph"}, .written = written};
    const py_exchange_api *api;
    if (py_tensor_take(&who, &param, object, NULL, tensor, &api)) return -1;
    if (api && tensor->tensor.device.device_type == TVM_TENSOR_CUDA) graph->api = api;
    return 0;
}

/* The object is held by its name in the place of an earlier one. */
static PyObject *hold(py_graph *graph, PyObject *name, PyObject *object, py_tensor *tensor,
                      tvm_status status) {
    py_tensor_release(tensor);
    if (status) return none_or_raise(graph, status);
    return PyDict_SetItem(graph->tensors, name, object) ? NULL : Py_NewRef(Py_None);
}

static PyObject *graph_tensor(PyObject *self, PyObject *args) {
    py_graph *graph = (py_graph *)self;
    PyObject *name, *object;
    int role;
    py_tensor tensor;
    if (!PyArg_ParseTuple(args, "UiO:tensor", &name, &role, &object) || !is_open(graph)) return NULL;
    PyObject *text = PyUnicode_AsUTF8String(name);
    if (!text) return NULL;
    PyObject *result = NULL;
    if (!take(graph, name, object, role != TVM_GRAPH_INPUT, &tensor))
        result = hold(
            graph, name, object, &tensor,
            tvm_graph_add_tensor(graph->graph, PyBytes_AsString(text), (tvm_graph_role)role, &tensor.tensor));
    Py_DECREF(text);
    return result;
}

static PyObject *graph_role(PyObject *self, PyObject *given) {
    py_graph *graph = (py_graph *)self;
    tvm_graph_role role = TVM_GRAPH_INPUT;
    PyObject *text = is_open(graph) ? PyUnicode_AsUTF8String(given) : NULL;
    if (!text) return NULL;
    tvm_status status = tvm_graph_get_role(graph->graph, PyBytes_AsString(text), &role);
    Py_DECREF(text);
    return status ? none_or_raise(graph, status) : PyLong_FromLong((long)role);
}

static PyObject *graph_set_tensor(PyObject *self, PyObject *args) {
    py_graph *graph = (py_graph *)self;
    PyObject *name, *object;
    int written;
    py_tensor tensor;
    if (!PyArg_ParseTuple(args, "UpO:set_tensor", &name, &written, &object) || !is_open(graph)) return NULL;
    PyObject *text = PyUnicode_AsUTF8String(name);
    if (!text) return NULL;
    PyObject *result = NULL;
    if (!take(graph, name, object, written, &tensor))
        result = hold(graph, name, object, &tensor,
                      tvm_graph_set_tensor(graph->graph, PyBytes_AsString(text), &tensor.tensor));
    Py_DECREF(text);
    return result;
}

/* A temporary, or a part of the tensor `whole` that begins at a byte of it. */
static PyObject *graph_described(PyObject *self, PyObject *args) {
    py_graph *graph = (py_graph *)self;
    const char *name, *whole;
    unsigned code, bits;
    unsigned long long offset;
    PyObject *extents;
    int64_t shape[PY_MOST_RANK];
    if (!PyArg_ParseTuple(args, "szIIO!K:described", &name, &whole, &code, &bits, &PyTuple_Type, &extents,
                          &offset) ||
        !is_open(graph))
        return NULL;
    Py_ssize_t rank = PyTuple_Size(extents);
    if (rank > PY_MOST_RANK)
        return py_raise_format(graph->state, TVM_ARGUMENT, "'%s' has more than 8 dimensions", name);
    for (Py_ssize_t d = 0; d < rank; d++) shape[d] = PyLong_AsLongLong(PyTuple_GetItem(extents, d));
    if (PyErr_Occurred()) return NULL;
    const tvm_tensor tensor = {.ndim = (int32_t)rank,
                               .dtype = {(uint8_t)code, (uint8_t)bits, 1},
                               .shape = shape,
                               .byte_offset = offset};
    return none_or_raise(graph, whole
                                    ? tvm_graph_add_part(graph->graph, name, whole, &tensor)
                                    : tvm_graph_add_tensor(graph->graph, name, TVM_GRAPH_TEMPORARY, &tensor));
}

/* ---- scalars and launches ---- */

static int value_of(PyObject *object, bool is_float, tvm_value *value) {
    *value = (tvm_value){0};
    if (is_float) {
        value->f = PyFloat_AsDouble(object);
        return value->f == -1.0 && PyErr_Occurred() ? -1 : 0;
    }
    PyObject *number = PyNumber_Index(object);
    if (!number) return -1;
    value->i = PyLong_AsLongLong(number);
    if (value->i == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        value->i = (int64_t)PyLong_AsUnsignedLongLong(number); /* of u64 */
    }
    Py_DECREF(number);
    return value->i == -1 && PyErr_Occurred() ? -1 : 0;
}

/* type: NULL of a scalar that there is; is_float: -1 where that is not known. */
static PyObject *graph_scalar(PyObject *self, PyObject *args) {
    py_graph *graph = (py_graph *)self;
    const char *name, *type;
    PyObject *object;
    int is_float;
    tvm_value value;
    if (!PyArg_ParseTuple(args, "sziO:scalar", &name, &type, &is_float, &object) || !is_open(graph))
        return NULL;
    if (is_float < 0 ? any_value(object, &value) : value_of(object, is_float, &value)) return NULL;
    return none_or_raise(graph, type ? tvm_graph_add_scalar(graph->graph, name, type, &value)
                                     : tvm_graph_set_scalar(graph->graph, name, &value));
}

/* A name, or a scalar's value; None of a tensor without elements. The text lives as long as `texts`. */
static int take_argument(const py_kernel *kernel, unsigned p, PyObject *object, PyObject *texts,
                         tvm_graph_argument *argument) {
    *argument = (tvm_graph_argument){0};
    if (object == Py_None) return 0;
    if (!PyUnicode_Check(object))
        return value_of(object, kernel->params[p].kind == PY_FLOAT, &argument->value);
    PyObject *text = PyUnicode_AsUTF8String(object);
    if (!text || PyList_Append(texts, text)) {
        Py_XDECREF(text);
        return -1;
    }
    argument->name = PyBytes_AsString(text);
    Py_DECREF(text); /* the list has it */
    return 0;
}

static PyObject *add_launch(py_graph *graph, const char *name, py_kernel *kernel, PyObject *given,
                            const char **after, size_t after_count, PyObject *texts) {
    tvm_graph_argument arguments[PY_MOST_PARAMS];
    tvm_kernel *on = py_kernel_on(kernel, graph->place);
    Py_ssize_t count = PyTuple_Size(given);
    if (!on) return NULL;
    for (Py_ssize_t p = 0; p < count && p < (Py_ssize_t)kernel->count; p++)
        if (take_argument(kernel, (unsigned)p, PyTuple_GetItem(given, p), texts, &arguments[p])) return NULL;
    tvm_status status =
        tvm_graph_add_launch(graph->graph, name, on, arguments, (size_t)count, after, after_count);
    if (status) return none_or_raise(graph, status);
    return PyList_Append(graph->kernels, (PyObject *)kernel) ? NULL : Py_NewRef(Py_None);
}

static PyObject *graph_launch(PyObject *self, PyObject *args) {
    enum { AFTER_MOST = 64 };
    py_graph *graph = (py_graph *)self;
    const char *name, *after[AFTER_MOST];
    PyObject *kernel, *given, *order, *result = NULL;
    if (!PyArg_ParseTuple(args, "sO!O!O!:launch", &name, graph->state->kernel_type, &kernel, &PyTuple_Type,
                          &given, &PyTuple_Type, &order) ||
        !is_open(graph))
        return NULL;
    Py_ssize_t count = PyTuple_Size(order);
    PyObject *texts = PyList_New(0);
    bool good = texts && count <= AFTER_MOST;
    if (texts && !good)
        py_raise_format(graph->state, TVM_ARGUMENT, "launch '%s' names more than %d launches to come after",
                        name, (int)AFTER_MOST);
    for (Py_ssize_t i = 0; good && i < count; i++) {
        PyObject *text = PyUnicode_AsUTF8String(PyTuple_GetItem(order, i));
        good = text && !PyList_Append(texts, text);
        if (good) after[i] = PyBytes_AsString(text);
        Py_XDECREF(text);
    }
    if (good) result = add_launch(graph, name, (py_kernel *)kernel, given, after, (size_t)count, texts);
    Py_XDECREF(texts);
    return result;
}

/* ---- the whole ---- */

static PyObject *graph_finish(PyObject *self, PyObject *given) {
    py_graph *graph = (py_graph *)self;
    tvm_status status = TVM_OK;
    int persistent = PyObject_IsTrue(given);
    if (persistent < 0 || !is_open(graph)) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    if (persistent) status = tvm_graph_set_persistent(graph->graph);
    if (!status) status = tvm_graph_finish(graph->graph);
    Py_END_ALLOW_THREADS;
    return none_or_raise(graph, status);
}

/* The stream's address, or None: the current one of the tensors' library. */
static PyObject *graph_run(PyObject *self, PyObject *given) {
    py_graph *graph = (py_graph *)self;
    tvm_status status;
    void *stream = NULL;
    if (!is_open(graph)) return NULL;
    if (given != Py_None)
        stream = PyLong_AsVoidPtr(given);
    else if (graph->place != PY_INTERPRETER && graph->api && graph->api->current_stream &&
             graph->api->current_stream(TVM_TENSOR_CUDA, (int32_t)graph->place - 1, &stream))
        return NULL;
    if (!stream && PyErr_Occurred()) return NULL;
    graph->has_run = true;
    graph->stream = stream;
    Py_BEGIN_ALLOW_THREADS;
    status = tvm_graph_launch(graph->graph, stream);
    Py_END_ALLOW_THREADS;
    return none_or_raise(graph, status);
}

static PyObject *graph_report(PyObject *self, PyObject *unused) {
    py_graph *graph = (py_graph *)self;
    char *text = NULL;
    (void)unused;
    if (!is_open(graph)) return NULL;
    tvm_status status = tvm_graph_report(graph->graph, &text);
    PyObject *result = status ? none_or_raise(graph, status) : PyUnicode_FromString(text);
    free(text);
    return result;
}

static PyMethodDef graph_methods[] = {
    {"tensor", graph_tensor, METH_VARARGS,
     "tensor($self, name, role, object, /)\n--\n\nDeclares one of the caller."},
    {"role", graph_role, METH_O, "role($self, name, /)\n--\n\nOf a tensor."},
    {"set_tensor", graph_set_tensor, METH_VARARGS,
     "set_tensor($self, name, written, object, /)\n--\n\nMoves it."},
    {"described", graph_described, METH_VARARGS,
     "described($self, name, whole, code, bits, shape, offset, /)\n--\n\nDeclares a temporary or a part."},
    {"scalar", graph_scalar, METH_VARARGS,
     "scalar($self, name, type, is_float, value, /)\n--\n\nDeclares one, or without a type sets it."},
    {"launch", graph_launch, METH_VARARGS,
     "launch($self, name, kernel, arguments, after, /)\n--\n\nAdds one."},
    {"finish", graph_finish, METH_O,
     "finish($self, persistent, /)\n--\n\nChecks and plans; persistent: for one kernel."},
    {"run", graph_run, METH_O, "run($self, stream, /)\n--\n\nLaunches."},
    {"report", graph_report, METH_NOARGS, "report($self, /)\n--\n\nDescribes."},
    {"close", graph_close, METH_NOARGS, "close($self, /)\n--\n\nWaits and frees."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot graph_slots[] = {
    {Py_tp_new, graph_new},
    {Py_tp_dealloc, graph_free},
    {Py_tp_methods, graph_methods},
    {Py_tp_doc, "Graph(name, device, source, /)\n--\n\nLaunches that run as one."},
    {0, NULL}};

PyType_Spec py_graph_spec = {.name = "tilusvm._native.Graph",
                             .basicsize = sizeof(py_graph),
                             .flags = Py_TPFLAGS_DEFAULT,
                             .slots = graph_slots};
