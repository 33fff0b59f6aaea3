/* Kernels and entries, which are called. */
#include "native.h"

#include <stdlib.h>
#include <string.h>

/* ---- making ---- */

static py_param_kind kind_of(const tvm_param_info *info) {
    if (info->is_tensor) return PY_TENSOR;
    if (info->type[0] == 'f') return PY_FLOAT;
    if (info->type[0] == 'b') return PY_BOOL;
    return strcmp(info->type, "u64") ? PY_INT : PY_UINT64;
}

static int read_param(tvm_kernel *from, size_t index, py_param *param) {
    tvm_param(from, index, &param->info);
    param->name = PyUnicode_InternFromString(param->info.name);
    param->kind = kind_of(&param->info);
    param->written = tvm_param_written(from, index) != 0;
    param->is_bf16 = !strcmp(param->info.type, "bf16");
    return param->name ? 0 : -1;
}

static int read_params(py_kernel *kernel) {
    tvm_kernel *from = kernel->on[PY_INTERPRETER];
    kernel->name = tvm_kernel_name(from);
    unsigned count = (unsigned)tvm_param_count(from);
    kernel->params = calloc(count + 1, sizeof *kernel->params);
    if (!kernel->params) {
        PyErr_NoMemory();
        return -1;
    }
    for (; kernel->count < count; kernel->count++)
        if (read_param(from, kernel->count, &kernel->params[kernel->count])) return -1;
    return 0;
}

/* The module's state, by the type or, of a subclass made in Python, the first of its bases that has one. */
static py_state *state_of(PyTypeObject *type) {
    for (; type; type = PyType_GetSlot(type, Py_tp_base)) {
        PyObject *module = PyType_GetModule(type);
        if (module) return PyModule_GetState(module);
        PyErr_Clear();
    }
    return NULL;
}

/* There is no object that is not whole: all is done where it is made, and nothing by __init__. */
static PyObject *kernel_new(PyTypeObject *type, PyObject *args, PyObject *words) {
    static char *names[] = {"", "", NULL};
    PyObject *program;
    Py_ssize_t index;
    py_state *state = state_of(type);
    if (!state) return PyErr_Format(PyExc_TypeError, "%R is of no module of this package", (PyObject *)type);
    if (!PyArg_ParseTupleAndKeywords(args, words, "O!n:Kernel", names, state->program_type, &program, &index))
        return NULL;
    tvm_kernel *on = tvm_kernel_at(((py_program *)program)->on[PY_INTERPRETER], (size_t)index);
    if (!on) return PyErr_Format(PyExc_IndexError, "the program has no kernel %zd", index);
    allocfunc allocate = PyType_GetSlot(type, Py_tp_alloc);
    PyObject *self = allocate(type, 0);
    if (!self) return NULL;
    py_kernel *kernel = (py_kernel *)self;
    kernel->state = state;
    kernel->index = (size_t)index;
    kernel->program = (py_program *)Py_NewRef(program);
    kernel->on[PY_INTERPRETER] = on;
    if (read_params(kernel)) Py_CLEAR(self);
    return self;
}

static void kernel_free(PyObject *self) {
    py_kernel *kernel = (py_kernel *)self;
    PyTypeObject *type = Py_TYPE(self);
    for (unsigned i = 0; i < kernel->count; i++) Py_XDECREF(kernel->params[i].name);
    free(kernel->params);
    Py_XDECREF((PyObject *)kernel->program);
    freefunc release = PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* ---- launching ---- */

static PyObject *interpret(py_kernel *kernel, py_arguments *arguments, tvm_kernel *on) {
    char *message;
    tvm_status status = py_interpret(kernel->state->contexts[PY_INTERPRETER], on, arguments->values,
                                     arguments->count, &message);
    py_arguments_release(arguments);
    /* A signal's handler has raised: that is what the caller sees. */
    PyObject *result = NULL;
    if (!status && !PyErr_Occurred())
        result = Py_NewRef(Py_None);
    else if (!PyErr_Occurred())
        py_raise_text(kernel->state, status, message ? message : "");
    free(message);
    return result;
}

static PyObject *launch(py_kernel *kernel, py_arguments *arguments, tvm_kernel *on) {
    tvm_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = tvm_launchv(on, arguments->stream, arguments->values, arguments->count);
    Py_END_ALLOW_THREADS;
    py_arguments_release(arguments);
    if (status) return py_raise(kernel->state, status, kernel->state->contexts[arguments->place]);
    return Py_NewRef(Py_None);
}

/* Arguments that are held, and the kernel where they lie; NULL with an exception, and nothing held. */
static tvm_kernel *take(py_kernel *kernel, PyObject *args, PyObject *words, py_arguments_rule rule,
                        py_arguments *arguments) {
    if (py_arguments_take(kernel, args, words, rule, arguments)) return NULL;
    tvm_kernel *on = py_kernel_on(kernel, arguments->place);
    if (!on) py_arguments_release(arguments);
    return on;
}

static PyObject *kernel_call(PyObject *self, PyObject *args, PyObject *words) {
    py_kernel *kernel = (py_kernel *)self;
    py_arguments arguments;
    tvm_kernel *on = take(kernel, args, words, PY_ALL_ARGUMENTS, &arguments);
    if (!on) return NULL;
    return arguments.place == PY_INTERPRETER ? interpret(kernel, &arguments, on)
                                             : launch(kernel, &arguments, on);
}

/* ---- what can be asked of a launch ---- */

static PyObject *finish(py_kernel *kernel, py_arguments *arguments, tvm_status status, PyObject *result) {
    py_arguments_release(arguments);
    if (!status) return result;
    Py_XDECREF(result);
    return py_raise(kernel->state, status, kernel->state->contexts[arguments->place]);
}

static PyObject *kernel_reserve(PyObject *self, PyObject *args, PyObject *words) {
    py_kernel *kernel = (py_kernel *)self;
    py_arguments arguments;
    tvm_status status;
    tvm_kernel *on = take(kernel, args, words, PY_SCALARS, &arguments);
    if (!on) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = tvm_reserve(on, arguments.stream, arguments.values, arguments.count);
    Py_END_ALLOW_THREADS;
    return finish(kernel, &arguments, status, Py_NewRef(Py_None));
}

static PyObject *kernel_variant(PyObject *self, PyObject *args, PyObject *words) {
    py_kernel *kernel = (py_kernel *)self;
    py_arguments arguments;
    const char *name;
    tvm_kernel *on = take(kernel, args, words, PY_SCALARS, &arguments);
    if (!on) return NULL;
    tvm_status status = tvm_kernel_variant(on, arguments.values, arguments.count, &name);
    return finish(kernel, &arguments, status, status ? NULL : PyUnicode_FromString(name));
}

static PyObject *kernel_time(PyObject *self, PyObject *args, PyObject *words) {
    py_kernel *kernel = (py_kernel *)self;
    py_arguments arguments;
    tvm_status status;
    double microseconds;
    tvm_kernel *on = take(kernel, args, words, PY_ALL_ARGUMENTS, &arguments);
    if (!on) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = tvm_time(on, arguments.values, arguments.count, 20, &microseconds);
    Py_END_ALLOW_THREADS;
    return finish(kernel, &arguments, status, status ? NULL : PyFloat_FromDouble(microseconds));
}

static PyObject *tuple_of(const int64_t *numbers, unsigned count) {
    PyObject *tuple = PyTuple_New(count);
    for (unsigned i = 0; tuple && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);
        if (!number || PyTuple_SetItem(tuple, i, number)) Py_CLEAR(tuple);
    }
    return tuple;
}

/* The first argument is the number of the parameter. */
static PyObject *kernel_shape(PyObject *self, PyObject *args, PyObject *words) {
    py_kernel *kernel = (py_kernel *)self;
    py_arguments arguments;
    int64_t shape[PY_MOST_RANK];
    size_t bytes = 0;
    Py_ssize_t index =
        PyTuple_Size(args) ? PyNumber_AsSsize_t(PyTuple_GetItem(args, 0), PyExc_IndexError) : -1;
    if (index == -1 && PyErr_Occurred()) return NULL;
    if (index < 0 || index >= (Py_ssize_t)kernel->count) {
        PyErr_SetString(PyExc_IndexError, "there is no such parameter");
        return NULL;
    }
    PyObject *rest = PyTuple_GetSlice(args, 1, PyTuple_Size(args));
    tvm_kernel *on = rest ? take(kernel, rest, words, PY_SCALARS, &arguments) : NULL;
    Py_XDECREF(rest);
    if (!on) return NULL;
    tvm_status status = tvm_param_shape(on, (size_t)index, arguments.values, arguments.count, shape, &bytes);
    PyObject *result = NULL;
    if (!status) result = tuple_of(shape, kernel->params[index].info.rank);
    return finish(kernel, &arguments, status, result ? Py_BuildValue("Nn", result, (Py_ssize_t)bytes) : NULL);
}

/* ---- what can be asked of a kernel ---- */

static tvm_kernel *on_device(py_kernel *kernel, PyObject *device, int *place) {
    *place = py_place_of(kernel->state, device);
    return *place < 0 ? NULL : py_kernel_on(kernel, (unsigned)*place);
}

static PyObject *kernel_prepare(PyObject *self, PyObject *device) {
    py_kernel *kernel = (py_kernel *)self;
    int place;
    tvm_status status;
    tvm_kernel *on = on_device(kernel, device, &place);
    if (!on) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = tvm_prepare(on);
    Py_END_ALLOW_THREADS;
    return status ? py_raise(kernel->state, status, kernel->state->contexts[place]) : Py_NewRef(Py_None);
}

/* The same on every device: it is proved where the interpreter has it. */
static PyObject *judged(PyObject *self, tvm_status (*judge)(tvm_kernel *, tvm_kernel_proof *, char **)) {
    py_kernel *kernel = (py_kernel *)self;
    tvm_status status;
    tvm_kernel_proof proof;
    char *report;
    tvm_kernel *on = py_kernel_on(kernel, PY_INTERPRETER);
    if (!on) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = judge(on, &proof, &report);
    Py_END_ALLOW_THREADS;
    if (status) return py_raise(kernel->state, status, kernel->state->contexts[PY_INTERPRETER]);
    PyObject *result =
        Py_BuildValue("iiis", (int)proof.races, (int)proof.deadlocks, (int)proof.global, report);
    free(report);
    return result;
}

static PyObject *kernel_prove(PyObject *self, PyObject *unused) {
    (void)unused;
    return judged(self, tvm_prove_kernel);
}

static PyObject *kernel_check(PyObject *self, PyObject *unused) {
    (void)unused;
    return judged(self, tvm_check_kernel);
}

static PyObject *kernel_info(PyObject *self, PyObject *device) {
    py_kernel *kernel = (py_kernel *)self;
    int place;
    tvm_status status;
    tvm_kernel_info info;
    tvm_kernel *on = on_device(kernel, device, &place);
    if (!on) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = tvm_get_kernel_info(on, &info);
    Py_END_ALLOW_THREADS;
    if (status) return py_raise(kernel->state, status, kernel->state->contexts[place]);
    return Py_BuildValue("sInin", info.target, info.threads, (Py_ssize_t)info.shared_bytes, info.registers,
                         (Py_ssize_t)info.local_bytes);
}

static PyObject *kernel_name(PyObject *self, void *unused) {
    (void)unused;
    const py_kernel *kernel = (py_kernel *)self;
    return PyUnicode_FromString(kernel->name);
}

static PyObject *kernel_parameters(PyObject *self, void *unused) {
    (void)unused;
    const py_kernel *kernel = (py_kernel *)self;
    PyObject *all = PyTuple_New(kernel->count);
    for (unsigned i = 0; all && i < kernel->count; i++) {
        const py_param *param = &kernel->params[i];
        PyObject *one = Py_BuildValue("OsIOIsO", param->name, param->info.type, param->info.bits,
                                      param->info.is_tensor ? Py_True : Py_False, param->info.rank,
                                      param->info.shape, param->written ? Py_True : Py_False);
        if (!one || PyTuple_SetItem(all, i, one)) Py_CLEAR(all);
    }
    return all;
}

static PyObject *kernel_program(PyObject *self, void *unused) {
    (void)unused;
    return Py_NewRef((PyObject *)((py_kernel *)self)->program);
}

static PyGetSetDef kernel_attributes[] = {
    {"name", kernel_name, NULL, "Its name.", NULL},
    {"_parameters", kernel_parameters, NULL, "(name, type, bits, is_tensor, rank, shape, written) of each.",
     NULL},
    {"_program", kernel_program, NULL, "The program that it is of.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

#define WITH_NAMES(function) (PyCFunction)(void (*)(void)) function
static PyMethodDef kernel_methods[] = {
    {"reserve", WITH_NAMES(kernel_reserve), METH_VARARGS | METH_KEYWORDS,
     "reserve($self, /, *args, stream=None, device=None, **by_name)\n--\n\n"
     "Prepares, and makes the memory that launches with these scalars need on the stream, so that they can be\n"
     "captured into a CUDA graph. Tensors may be left out when device says where."},
    {"variant", WITH_NAMES(kernel_variant), METH_VARARGS | METH_KEYWORDS,
     "variant($self, /, *args, device=None, **by_name)\n--\n\n"
     "The name of the kernel that a launch with these arguments runs. Tensors may be left out."},
    {"time", WITH_NAMES(kernel_time), METH_VARARGS | METH_KEYWORDS,
     "time($self, /, *args, **by_name)\n--\n\n"
     "Microseconds on the device of one launch with these arguments: the median of 20."},
    {"_shape", WITH_NAMES(kernel_shape), METH_VARARGS | METH_KEYWORDS,
     "_shape($self, index, /, *args, device=None, **by_name)\n--\n\nA tensor's extents, and its bytes."},
    {"prepare", kernel_prepare, METH_O,
     "prepare($self, device, /)\n--\n\n"
     "Translates and loads now, so that the first launch does not; of an entry all variants."},
    {"_check", kernel_check, METH_NOARGS, "_check($self, /)\n--\n\n(races, deadlocks, global, report)"},
    {"_prove", kernel_prove, METH_NOARGS, "_prove($self, /)\n--\n\n(races, deadlocks, global, report)"},
    {"_info", kernel_info, METH_O,
     "_info($self, device, /)\n--\n\n(target, threads, shared_bytes, registers, local_bytes)"},
    {NULL, NULL, 0, NULL}};

static PyType_Slot kernel_slots[] = {
    {Py_tp_new, kernel_new},
    {Py_tp_dealloc, kernel_free},
    {Py_tp_call, kernel_call},
    {Py_tp_getset, kernel_attributes},
    {Py_tp_methods, kernel_methods},
    {Py_tp_doc, "Kernel(program, index, /)\n--\n\nA kernel or entry of a program."},
    {0, NULL}};

PyType_Spec py_kernel_spec = {.name = "tilusvm._native.Kernel",
                              .basicsize = sizeof(py_kernel),
                              .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                              .slots = kernel_slots};
