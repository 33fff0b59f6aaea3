/* The module, and what is neither a program nor a kernel. */
#include "native.h"

#include <stdlib.h>
#include <string.h>

static py_state *state_of(PyObject *module) {
    return PyModule_GetState(module);
}

/* ---- text to bytecode ---- */

/* The texts of a sequence, which live as long as *held, a list of bytes. NULL with an exception. */
static const char **texts_of(PyObject *sequence, PyObject **held, size_t *count) {
    *held = PySequence_List(sequence);
    Py_ssize_t size = *held ? PyList_Size(*held) : 0;
    const char **texts = *held ? calloc((size_t)size + 1, sizeof *texts) : NULL;
    for (Py_ssize_t i = 0; texts && i < size; i++) {
        PyObject *bytes = PyUnicode_AsUTF8String(PyList_GetItem(*held, i));
        texts[i] = bytes ? PyBytes_AsString(bytes) : NULL;
        if (!texts[i] || PyList_SetItem(*held, i, bytes)) {
            free(texts);
            texts = NULL;
        }
    }
    if (!texts && !PyErr_Occurred()) PyErr_NoMemory();
    *count = (size_t)size;
    return texts;
}

static PyObject *bytes_of_program(py_state *state, tvm_context *context, tvm_program *program) {
    void *bytes;
    size_t size;
    tvm_status status = tvm_program_bytes(program, &bytes, &size);
    PyObject *result =
        status ? py_raise(state, status, context) : PyBytes_FromStringAndSize(bytes, (Py_ssize_t)size);
    free(bytes);
    return result;
}

static PyObject *assemble_text(py_state *state, const char *text, Py_ssize_t length,
                               const tvm_assemble_options *options) {
    tvm_context *context = py_context(state, PY_INTERPRETER);
    tvm_program *program = NULL;
    tvm_status status;
    if (!context) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = tvm_assemble(context, text, (size_t)length, options, &program);
    Py_END_ALLOW_THREADS;
    PyObject *result = status ? py_raise(state, status, context) : bytes_of_program(state, context, program);
    tvm_program_free(program);
    return result;
}

int py_text_options_take(const char *name, PyObject *defines, PyObject *folders, py_text_options *out) {
    *out = (py_text_options){.options.name = name};
    out->options.defines = texts_of(defines, &out->defines, &out->options.define_count);
    if (!out->options.defines) return -1;
    out->options.include_dirs = texts_of(folders, &out->folders, &out->options.include_dir_count);
    return out->options.include_dirs ? 0 : -1;
}

void py_text_options_free(py_text_options *options) {
    free((void *)options->options.defines);
    free((void *)options->options.include_dirs);
    Py_XDECREF(options->defines);
    Py_XDECREF(options->folders);
}

static PyObject *assemble(PyObject *module, PyObject *args) {
    const char *text, *name;
    Py_ssize_t length;
    PyObject *defines, *folders, *result = NULL;
    py_text_options options;
    if (!PyArg_ParseTuple(args, "s#zOO:assemble", &text, &length, &name, &defines, &folders)) return NULL;
    if (!py_text_options_take(name, defines, folders, &options))
        result = assemble_text(state_of(module), text, length, &options.options);
    py_text_options_free(&options);
    return result;
}

/* ---- contexts ---- */

static tvm_context *context_of(py_state *state, PyObject *device) {
    int place = py_place_of(state, device);
    return place < 0 ? NULL : py_context(state, (unsigned)place);
}

static PyObject *device_name(PyObject *module, PyObject *device) {
    const tvm_context *context = context_of(state_of(module), device);
    return context ? PyUnicode_FromString(tvm_device_name(context)) : NULL;
}

static PyObject *device_report(PyObject *module, PyObject *device) {
    tvm_context *context = context_of(state_of(module), device);
    char *text = NULL;
    tvm_status status;
    if (!context) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = tvm_device_report(context, &text);
    Py_END_ALLOW_THREADS;
    PyObject *report = status ? py_raise(state_of(module), status, context) : PyUnicode_FromString(text);
    free(text);
    return report;
}

static PyObject *target_report(PyObject *module, PyObject *args) {
    PyObject *device;
    const char *target;
    if (!PyArg_ParseTuple(args, "Os:target_report", &device, &target)) return NULL;
    tvm_context *context = context_of(state_of(module), device);
    char *text = NULL;
    if (!context) return NULL;
    tvm_status status = tvm_target_report(context, target, &text);
    PyObject *report = status ? py_raise(state_of(module), status, context) : PyUnicode_FromString(text);
    free(text);
    return report;
}

static PyObject *none_or_raise(py_state *state, tvm_status status, const tvm_context *context) {
    return status ? py_raise(state, status, context) : Py_NewRef(Py_None);
}

static PyObject *synchronize(PyObject *module, PyObject *args) {
    PyObject *device;
    unsigned long long stream;
    if (!PyArg_ParseTuple(args, "OK:synchronize", &device, &stream)) return NULL;
    tvm_context *context = context_of(state_of(module), device);
    tvm_status status;
    if (!context) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = tvm_synchronize(context, (void *)(uintptr_t)stream);
    Py_END_ALLOW_THREADS;
    return none_or_raise(state_of(module), status, context);
}

static PyObject *cancel(PyObject *module, PyObject *unused) {
    (void)unused;
    tvm_context *context = py_context(state_of(module), PY_INTERPRETER);
    return context ? none_or_raise(state_of(module), tvm_cancel(context), context) : NULL;
}

static PyObject *set_limits(PyObject *module, PyObject *args) {
    unsigned long long scratch, blocks, instructions;
    tvm_limits limits = {0};
    PyObject *device;
    if (!PyArg_ParseTuple(args, "OKKKIIp:set_limits", &device, &scratch, &blocks, &instructions,
                          &limits.milliseconds, &limits.turns, &limits.co_resident))
        return NULL;
    limits.scratch_bytes = scratch;
    limits.blocks = blocks;
    limits.instructions = instructions;
    tvm_context *context = context_of(state_of(module), device);
    return context ? none_or_raise(state_of(module), tvm_set_limits(context, &limits), context) : NULL;
}

static PyObject *set_sanitizer(PyObject *module, PyObject *mode) {
    long number = PyLong_AsLong(mode);
    if (number == -1 && PyErr_Occurred()) return NULL;
    tvm_context *context = py_context(state_of(module), PY_INTERPRETER);
    return context
               ? none_or_raise(state_of(module), tvm_set_sanitizer(context, (tvm_sanitize)number), context)
               : NULL;
}

static PyObject *set_interpreter(PyObject *module, PyObject *args) {
    py_state *state = state_of(module);
    tvm_context_options options = state->interpreter;
    if (!PyArg_ParseTuple(args, "III:set_interpreter", &options.threads, &options.multiprocessors,
                          &options.target))
        return NULL;
    if (state->contexts[PY_INTERPRETER])
        return py_raise_text(state, TVM_USAGE,
                             "the interpreter is in use: set it up before the first program");
    state->interpreter = options;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"assemble", assemble, METH_VARARGS,
     "assemble($module, text, name, defines, folders, /)\n--\n\nText to bytecode."},
    {"device_name", device_name, METH_O, "device_name($module, device, /)\n--\n\nWhat it is."},
    {"device_report", device_report, METH_O, "device_report($module, device, /)\n--\n\nWhat it is."},
    {"target_report", target_report, METH_VARARGS,
     "target_report($module, device, target, /)\n--\n\nWhat a target is; the device gives messages."},
    {"synchronize", synchronize, METH_VARARGS, "synchronize($module, device, stream, /)\n--\n\nWaits."},
    {"cancel", cancel, METH_NOARGS, "cancel($module, /)\n--\n\nEnds launches on the interpreter."},
    {"set_limits", set_limits, METH_VARARGS,
     "set_limits($module, device, scratch_bytes, blocks, instructions, milliseconds, turns, co_resident, /)\n--\n\n"
     "What launches may take."},
    {"set_sanitizer", set_sanitizer, METH_O,
     "set_sanitizer($module, mode, /)\n--\n\n0: none; 1: text, 2: JSON."},
    {"set_interpreter", set_interpreter, METH_VARARGS,
     "set_interpreter($module, threads, multiprocessors, target, /)\n--\n\nBefore the first program."},
    {"quantize", py_quantize, METH_VARARGS,
     "quantize($module, type, absmax, n, k, weights, code, bits, packed, width, scales, zeros, scale_code, "
     "groups, importance, /)\n--\n\nWeights to codes and scales; tensors are addresses."},
    {NULL, NULL, 0, NULL}};

/* ---- the module ---- */

static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec) {
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type && PyModule_AddType(module, (PyTypeObject *)type)) Py_CLEAR(type);
    return (PyTypeObject *)type;
}

static int execute(PyObject *module) {
    py_state *state = state_of(module);
    state->interpreter.device = TVM_DEVICE_CPU;
    PyObject *errors = PyImport_ImportModule("tilusvm._errors");
    if (!errors) return -1;
    state->make_error = PyObject_GetAttrString(errors, "make");
    Py_DECREF(errors);
    state->exchange_name = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
    state->stream_name = PyUnicode_InternFromString("stream");
    state->device_name = PyUnicode_InternFromString("device");
    state->program_type = add_type(module, &py_program_spec);
    state->kernel_type = add_type(module, &py_kernel_spec);
    state->graph_type = add_type(module, &py_graph_spec);
    bool made = state->make_error && state->exchange_name && state->stream_name && state->device_name &&
                state->program_type && state->kernel_type && state->graph_type;
    return made ? PyModule_AddStringConstant(module, "version", TVM_PYTHON_VERSION) : -1;
}

static int clear(PyObject *module) {
    py_state *state = state_of(module);
    py_forget_types(state);
    Py_CLEAR(state->make_error);
    Py_CLEAR(state->exchange_name);
    Py_CLEAR(state->stream_name);
    Py_CLEAR(state->device_name);
    Py_CLEAR(state->program_type);
    Py_CLEAR(state->kernel_type);
    Py_CLEAR(state->graph_type);
    return 0;
}

static int traverse(PyObject *module, visitproc visit, void *arg) {
    py_state *state = state_of(module);
    Py_VISIT(state->make_error);
    Py_VISIT(state->program_type);
    Py_VISIT(state->kernel_type);
    Py_VISIT(state->graph_type);
    return 0;
}

/* Contexts stay until the process ends: a GPU's has code and memory that captured graphs use. */
static PyModuleDef_Slot slots[] = {{Py_mod_exec, execute}, {0, NULL}};
static PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT,
                                 .m_name = "tilusvm._native",
                                 .m_doc = "What of libtilusvm Python sees; tilusvm is the package to use.",
                                 .m_size = sizeof(py_state),
                                 .m_methods = functions,
                                 .m_slots = slots,
                                 .m_traverse = traverse,
                                 .m_clear = clear};

PyMODINIT_FUNC PyInit__native(void) {
    return PyModuleDef_Init(&definition);
}
