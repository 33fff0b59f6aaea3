/* tvm_quantize of matrices in the host's memory. */
#include "native.h"

/* A row-major matrix of the host, or with `transposed` the transpose of one. */
typedef struct matrix {
    tvm_tensor tensor;
    int64_t shape[2], strides[2];
} matrix;

static const tvm_tensor *describe(matrix *m, unsigned long long address, tvm_tensor_dtype dtype, int64_t rows,
                                  int64_t columns, bool transposed) {
    *m = (matrix){.tensor = {.data = (void *)(uintptr_t)address,
                             .device = {TVM_TENSOR_CPU, 0},
                             .ndim = 2,
                             .dtype = dtype},
                  .shape = {rows, columns},
                  .strides = {transposed ? 1 : columns, transposed ? rows : 1}};
    m->tensor.shape = m->shape;
    m->tensor.strides = m->strides;
    return &m->tensor;
}

/* The matrices are at addresses, which the caller owns: weights [n, k], of the DLPack type (code, bits);
 * packed [k, width] bytes; scales and zeros [groups, n] of the 16-bit type of that code; importance f32[k].
 * 0: none. */
PyObject *py_quantize(PyObject *module, PyObject *args) {
    py_state *state = PyModule_GetState(module);
    tvm_quantize_options options = {0};
    unsigned long long weights, packed, scales, zeros, importance;
    long long k, n, width, groups;
    unsigned code, bits, scale_code;
    int absmax;
    if (!PyArg_ParseTuple(args, "spLLKIIKLKKILK:quantize", &options.type, &absmax, &n, &k, &weights, &code,
                          &bits, &packed, &width, &scales, &zeros, &scale_code, &groups, &importance))
        return NULL;
    options.scales = absmax ? TVM_SCALES_ABSMAX : TVM_SCALES_MSE;
    options.importance = (const float *)(uintptr_t)importance;
    options.importance_length = importance ? (size_t)k : 0;
    tvm_tensor_dtype from = {.code = (uint8_t)code, .bits = (uint8_t)bits, .lanes = 1};
    tvm_tensor_dtype half = {.code = (uint8_t)scale_code, .bits = 16, .lanes = 1};
    tvm_tensor_dtype byte = {.code = TVM_TENSOR_UINT, .bits = 8, .lanes = 1};
    matrix w, p, s, z;
    describe(&w, weights, from, k, n, true);
    describe(&p, packed, byte, k, width, false);
    describe(&s, scales, half, groups, n, false);
    const tvm_tensor *points = zeros ? describe(&z, zeros, half, groups, n, false) : NULL;
    tvm_context *context = py_context(state, PY_INTERPRETER);
    if (!context) return NULL;
    tvm_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = tvm_quantize(context, &options, &w.tensor, &p.tensor, &s.tensor, points);
    Py_END_ALLOW_THREADS;
    return status ? py_raise(state, status, context) : Py_NewRef(Py_None);
}
