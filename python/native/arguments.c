/* The arguments of a call. The way of a call that works allocates nothing. */
#include "native.h"

#include <string.h>

/* What is known of a call while its arguments are read. */
typedef struct reader {
    py_kernel *kernel;
    py_arguments *out;
    PyObject *stream;           /* stream=, or NULL */
    bool placed;                /* by device=, or by a tensor */
    const py_exchange_api *api; /* of the first tensor on a GPU that has one */
} reader;

/* ---- scalars ---- */

static int refuse_scalar(const reader *r, const py_param *param, PyObject *object) {
    PyObject *type = PyType_GetName(Py_TYPE(object));
    if (type)
        py_raise_from(r->kernel->state, TVM_ARGUMENT,
                      "kernel '%s': %R, a %U, does not fit parameter '%U' of type %s", r->kernel->name,
                      object, type, param->name, param->info.type);
    Py_XDECREF(type);
    return -1;
}

static int take_integer(const reader *r, const py_param *param, PyObject *object, tvm_value *value) {
    PyObject *number = PyLong_CheckExact(object) ? Py_NewRef(object) : PyNumber_Index(object);
    if (!number) return refuse_scalar(r, param, object);
    value->i =
        param->kind == PY_UINT64 ? (int64_t)PyLong_AsUnsignedLongLong(number) : PyLong_AsLongLong(number);
    bool failed = value->i == -1 && PyErr_Occurred();
    Py_DECREF(number);
    return failed ? refuse_scalar(r, param, object) : 0;
}

static int take_scalar(const reader *r, const py_param *param, PyObject *object, tvm_value *value) {
    if (param->kind == PY_FLOAT) {
        value->f = PyFloat_AsDouble(object);
        return value->f == -1.0 && PyErr_Occurred() ? refuse_scalar(r, param, object) : 0;
    }
    if (param->kind != PY_BOOL) return take_integer(r, param, object, value);
    int truth = PyObject_IsTrue(object);
    if (truth < 0) return refuse_scalar(r, param, object);
    value->i = truth;
    return 0;
}

/* ---- tensors ---- */

/* Where a tensor lies is where the launch goes; what does not lie there is refused by the library. */
static int place_by(reader *r, const tvm_tensor *tensor) {
    int32_t type = (int32_t)tensor->device.device_type, id = tensor->device.device_id;
    r->placed = true;
    r->out->place = PY_INTERPRETER;
    if (type != TVM_TENSOR_CUDA && type != TVM_TENSOR_CUDA_MANAGED) return 0;
    if (id < 0 || id >= PY_MOST_GPUS) {
        py_raise_format(r->kernel->state, TVM_NOT_FOUND, "there is no device cuda:%d", (int)id);
        return -1;
    }
    r->out->place = 1u + (unsigned)id;
    return 0;
}

static int take_tensor(reader *r, const py_param *param, PyObject *object, tvm_value *value) {
    py_arguments *out = r->out;
    value->data = NULL;
    value->bytes = 0;
    value->tensor = NULL;
    if (object == Py_None) return 0; /* for a tensor without elements */
    const py_exchange_api *api;
    py_tensor *tensor = &out->tensors[out->held];
    if (py_tensor_take(r->kernel, param, object, r->stream, tensor, &api)) return -1;
    out->held++;
    value->tensor = &tensor->tensor;
    if (api && !r->api && tensor->tensor.device.device_type == TVM_TENSOR_CUDA) r->api = api;
    return r->placed ? 0 : place_by(r, &tensor->tensor);
}

static int take(reader *r, unsigned index, PyObject *object) {
    const py_param *param = &r->kernel->params[index];
    tvm_value *value = &r->out->values[index];
    if (param->kind == PY_TENSOR) return take_tensor(r, param, object, value);
    value->tensor = NULL;
    value->data = NULL;
    return take_scalar(r, param, object, value);
}

/* ---- names ---- */

static int find_name(const py_kernel *kernel, PyObject *name) {
    for (unsigned i = 0; i < kernel->count; i++)
        if (kernel->params[i].name == name) return (int)i;
    for (unsigned i = 0; i < kernel->count; i++)
        if (!PyUnicode_Compare(kernel->params[i].name, name)) return (int)i;
    return -1;
}

static int refuse_name(const py_kernel *kernel, PyObject *name, const char *why) {
    py_raise_format(kernel->state, (tvm_status)PY_SIGNATURE, "kernel '%s': %s '%U'", kernel->name, why, name);
    return -1;
}

static int take_names(reader *r, PyObject *dict, uint64_t *given) {
    PyObject *name, *object;
    Py_ssize_t position = 0;
    const py_state *state = r->kernel->state;
    while (PyDict_Next(dict, &position, &name, &object)) {
        int index = find_name(r->kernel, name);
        bool option = index < 0 && (!PyUnicode_Compare(name, state->stream_name) ||
                                    !PyUnicode_Compare(name, state->device_name));
        if (option) continue;
        if (index < 0) return refuse_name(r->kernel, name, "there is no parameter");
        if (*given >> index & 1) return refuse_name(r->kernel, name, "two arguments are given for parameter");
        if (take(r, (unsigned)index, object)) return -1;
        *given |= UINT64_C(1) << index;
    }
    return 0;
}

/* device= goes before the tensors, which are then refused where they are not there. */
static int take_options(reader *r, PyObject *dict) {
    py_state *state = r->kernel->state;
    PyObject *device = PyDict_GetItemWithError(dict, state->device_name);
    r->stream = PyDict_GetItemWithError(dict, state->stream_name);
    if (r->stream == Py_None) r->stream = NULL;
    if (device && find_name(r->kernel, state->device_name) >= 0) device = NULL;
    if (r->stream && find_name(r->kernel, state->stream_name) >= 0) r->stream = NULL;
    if (!device || device == Py_None) return PyErr_Occurred() ? -1 : 0;
    int place = py_place_of(state, device);
    r->placed = true;
    r->out->place = (unsigned)place;
    return place < 0 ? -1 : 0;
}

static int check_given(const reader *r, uint64_t given, py_arguments_rule rule) {
    for (unsigned i = 0; i < r->kernel->count; i++) {
        const py_param *param = &r->kernel->params[i];
        if (given >> i & 1) continue;
        if (rule == PY_ALL_ARGUMENTS || param->kind != PY_TENSOR)
            return refuse_name(r->kernel, param->name, "no argument is given for parameter");
        r->out->values[i] = (tvm_value){0};
    }
    return 0;
}

/* ---- streams ---- */

/* An address as a number, torch's Stream.cuda_stream, or what __cuda_stream__() gives: (version, address). */
static int stream_of_object(const reader *r, PyObject *object, void **stream) {
    PyObject *number = NULL, *method = NULL;
    if (PyLong_Check(object))
        number = Py_NewRef(object);
    else
        number = py_attribute_named(object, "cuda_stream");
    if (!number && !PyErr_Occurred()) method = py_attribute_named(object, "__cuda_stream__");
    if (method) {
        PyObject *pair = PyObject_CallObject(method, NULL);
        number = pair ? PySequence_GetItem(pair, 1) : NULL;
        Py_XDECREF(pair);
        Py_DECREF(method);
    }
    *stream = number ? PyLong_AsVoidPtr(number) : NULL;
    bool failed = !number || (!*stream && PyErr_Occurred());
    Py_XDECREF(number);
    if (!failed) return 0;
    py_raise_from(r->kernel->state, TVM_USAGE, "kernel '%s': stream=%R is no CUDA stream", r->kernel->name,
                  object);
    return -1;
}

static int find_stream(const reader *r) {
    py_arguments *out = r->out;
    out->stream = NULL;
    if (out->place == PY_INTERPRETER) return 0;
    if (r->stream) return stream_of_object(r, r->stream, &out->stream);
    if (!r->api || !r->api->current_stream) return 0;
    return r->api->current_stream(TVM_TENSOR_CUDA, (int32_t)out->place - 1, &out->stream) ? -1 : 0;
}

/* ---- all ---- */

static int take_all(reader *r, PyObject *tuple, PyObject *dict, py_arguments_rule rule) {
    const py_kernel *kernel = r->kernel;
    Py_ssize_t places = PyTuple_Size(tuple);
    if (dict && take_options(r, dict)) return -1;
    if (places > (Py_ssize_t)kernel->count) {
        py_raise_format(kernel->state, (tvm_status)PY_SIGNATURE,
                        "kernel '%s' takes %u arguments, %zd were given", kernel->name, kernel->count,
                        places);
        return -1;
    }
    for (Py_ssize_t i = 0; i < places; i++)
        if (take(r, (unsigned)i, PyTuple_GetItem(tuple, i))) return -1;
    uint64_t given = places >= 64 ? UINT64_MAX : (UINT64_C(1) << places) - 1;
    if (dict && take_names(r, dict, &given)) return -1;
    if ((places < (Py_ssize_t)kernel->count) && check_given(r, given, rule)) return -1;
    return find_stream(r);
}

int py_arguments_take(py_kernel *kernel, PyObject *tuple, PyObject *dict, py_arguments_rule rule,
                      py_arguments *out) {
    reader r = {.kernel = kernel, .out = out};
    out->count = kernel->count;
    out->held = 0;
    out->place = PY_INTERPRETER;
    if (!take_all(&r, tuple, dict, rule)) return 0;
    py_arguments_release(out);
    return -1;
}

void py_arguments_release(py_arguments *arguments) {
    for (unsigned i = 0; i < arguments->held; i++) py_tensor_release(&arguments->tensors[i]);
}
