/* Python objects as tensors. No copy, and no synchronization. */
#include "native.h"

#include <string.h>

/* ---- types that have the exchange API ---- */

/* DLPack's specification names the capsule: one of another name holds something else. */
static const py_exchange_api *api_of_capsule(PyObject *capsule) {
    static const char name[] = "dlpack_exchange_api";
    const py_exchange_api *api =
        PyCapsule_IsValid(capsule, name) ? PyCapsule_GetPointer(capsule, name) : NULL;
    while (api && api->version.major > 1) api = api->older;
    return api && api->tensor_from_object ? api : NULL;
}

/* *api is NULL where the type has none. -1 with an exception where asking was interrupted. */
static int find_api(py_state *state, PyObject *type, const py_exchange_api **api) {
    PyObject *capsule = py_attribute(type, state->exchange_name);
    *api = capsule && PyCapsule_CheckExact(capsule) ? api_of_capsule(capsule) : NULL;
    Py_XDECREF(capsule);
    return PyErr_Occurred() ? -1 : 0;
}

static int api_of(py_state *state, PyObject *type, const py_exchange_api **api) {
    for (unsigned i = 0; i < PY_KNOWN_TYPES; i++)
        if (state->known[i].type == type) return *api = state->known[i].api, 0;
    if (find_api(state, type, api)) return -1;
    py_known_type *place = &state->known[state->known_next++ % PY_KNOWN_TYPES];
    PyObject *old = place->type;
    place->type = Py_NewRef(type);
    place->api = *api;
    Py_XDECREF(old);
    return 0;
}

void py_forget_types(py_state *state) {
    for (unsigned i = 0; i < PY_KNOWN_TYPES; i++) Py_CLEAR(state->known[i].type);
}

/* ---- buffers ---- */

/* The element of a buffer by its format, a character of the module struct. */
static bool dtype_of_format(const char *format, Py_ssize_t size, const py_param *param,
                            tvm_tensor_dtype *dtype) {
    if (!format) format = "B";
    if (*format == '@' || *format == '=' || *format == '<') format++; /* little-endian, as this machine */
    if (!format[0] || format[1] || size < 1 || size > 8) return false;
    int code = strchr("bhilq", *format)   ? TVM_TENSOR_INT
               : strchr("BHILQ", *format) ? TVM_TENSOR_UINT
               : strchr("efd", *format)   ? TVM_TENSOR_FLOAT
               : *format == '?'           ? TVM_TENSOR_BOOL
                                          : -1;
    /* numpy has no bf16: arrays of uint16 hold its bits */
    if (param->is_bf16 && code == TVM_TENSOR_UINT && size == 2) code = TVM_TENSOR_BFLOAT;
    *dtype = (tvm_tensor_dtype){.code = (uint8_t)code, .bits = (uint8_t)(8 * size), .lanes = 1};
    return code >= 0;
}

static int refuse_buffer(py_kernel *kernel, const py_param *param, py_tensor *tensor, const char *why) {
    PyBuffer_Release(&tensor->owner.buffer.view);
    py_raise_format(kernel->state, TVM_ARGUMENT, "kernel '%s': tensor '%U' %s", kernel->name, param->name,
                    why);
    return -1;
}

static int take_buffer(py_kernel *kernel, const py_param *param, PyObject *object, py_tensor *tensor) {
    Py_buffer *view = &tensor->owner.buffer.view;
    int64_t *shape = tensor->owner.buffer.shape, *strides = tensor->owner.buffer.strides;
    tvm_tensor *t = &tensor->tensor;
    if (PyObject_GetBuffer(object, view, PyBUF_FORMAT | PyBUF_STRIDES)) {
        py_raise_from(kernel->state, TVM_ARGUMENT, "kernel '%s': tensor '%U' gives no buffer", kernel->name,
                      param->name);
        return -1;
    }
    *t = (tvm_tensor){.data = view->buf,
                      .device = {TVM_TENSOR_CPU, 0},
                      .ndim = view->ndim,
                      .shape = shape,
                      .strides = strides};
    if (param->written && view->readonly)
        return refuse_buffer(kernel, param, tensor, "is written, but the array is read-only");
    if (view->ndim > PY_MOST_RANK) return refuse_buffer(kernel, param, tensor, "has more than 8 dimensions");
    if (!dtype_of_format(view->format, view->itemsize, param, &t->dtype))
        return refuse_buffer(kernel, param, tensor, "has elements of a type that no kernel takes");
    for (int d = 0; d < view->ndim; d++) {
        if (view->strides[d] % view->itemsize)
            return refuse_buffer(kernel, param, tensor, "has strides that are not whole elements");
        shape[d] = view->shape[d];
        strides[d] = view->strides[d] / view->itemsize;
    }
    tensor->kind = PY_BUFFER;
    return 0;
}

/* ---- __dlpack__ ---- */

/* The DLTensor in a capsule of either version, which does not change hands: the capsule goes on to own it. */
static const tvm_tensor *tensor_of_capsule(PyObject *capsule) {
    typedef struct versioned {
        struct {
            uint32_t major, minor;
        } version;
        void *manager;
        void (*deleter)(struct versioned *self);
        uint64_t flags;
        tvm_tensor tensor;
    } versioned;
    if (PyCapsule_IsValid(capsule, "dltensor")) return PyCapsule_GetPointer(capsule, "dltensor");
    if (!PyCapsule_IsValid(capsule, "dltensor_versioned")) return NULL;
    versioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    return managed && managed->version.major == 1 ? &managed->tensor : NULL;
}

/* stream: what __dlpack__ takes to make the data ready on; NULL: not given. */
static PyObject *call_dlpack(PyObject *method, PyObject *stream) {
    PyObject *capsule = NULL, *none = PyTuple_New(0);
    PyObject *words = none && stream ? Py_BuildValue("{sO}", "stream", stream) : NULL;
    if (none && (words || !stream)) capsule = PyObject_Call(method, none, words);
    Py_XDECREF(words);
    Py_XDECREF(none);
    return capsule;
}

static int take_capsule(py_kernel *kernel, const py_param *param, PyObject *method, PyObject *stream,
                        py_tensor *tensor) {
    PyObject *capsule = call_dlpack(method, stream);
    const tvm_tensor *found = capsule && PyCapsule_CheckExact(capsule) ? tensor_of_capsule(capsule) : NULL;
    if (!found) {
        Py_XDECREF(capsule);
        if (PyErr_Occurred())
            py_raise_from(kernel->state, TVM_ARGUMENT, "kernel '%s': tensor '%U' gives no DLPack tensor",
                          kernel->name, param->name);
        else
            py_raise_format(kernel->state, TVM_ARGUMENT,
                            "kernel '%s': tensor '%U' gives a DLPack tensor of another version than 0 or 1",
                            kernel->name, param->name);
        return -1;
    }
    tensor->tensor = *found;
    tensor->kind = PY_CAPSULE;
    tensor->owner.capsule = capsule;
    return 0;
}

/* ---- all ---- */

static int refuse_object(py_kernel *kernel, const py_param *param, PyObject *object) {
    PyObject *type = PyType_GetName(Py_TYPE(object));
    if (type)
        py_raise_format(kernel->state, TVM_ARGUMENT,
                        "kernel '%s': tensor '%U' is to be a tensor of %s, but is a %U", kernel->name,
                        param->name, param->info.type, type);
    Py_XDECREF(type);
    return -1;
}

int py_tensor_take(py_kernel *kernel, const py_param *param, PyObject *object, PyObject *stream,
                   py_tensor *tensor, const py_exchange_api **api) {
    if (api_of(kernel->state, (PyObject *)Py_TYPE(object), api)) return -1;
    if (*api) {
        tensor->kind = PY_BORROWED;
        if (!(*api)->tensor_from_object(object, &tensor->tensor)) return 0;
        py_raise_from(kernel->state, TVM_ARGUMENT, "kernel '%s': tensor '%U' gives no DLPack tensor",
                      kernel->name, param->name);
        return -1;
    }
    if (PyObject_CheckBuffer(object)) return take_buffer(kernel, param, object, tensor);
    PyObject *method = py_attribute_named(object, "__dlpack__");
    if (!method) return PyErr_Occurred() ? -1 : refuse_object(kernel, param, object);
    int result = take_capsule(kernel, param, method, stream, tensor);
    Py_DECREF(method);
    return result;
}

void py_tensor_release(py_tensor *tensor) {
    if (tensor->kind == PY_BUFFER) PyBuffer_Release(&tensor->owner.buffer.view);
    if (tensor->kind == PY_CAPSULE) Py_DECREF(tensor->owner.capsule);
}
