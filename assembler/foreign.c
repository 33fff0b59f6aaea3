#include "foreign.h"

#include <string.h>

const tvm_foreign tvm_foreign_words[] = {
    /* instructions */
    {"sigmoid", "sigmoid x is 1 / (1 + exp(-x))", "exp"},
    {"roll", "elements move along an axis by shift", "shift"},
    {"shuffle_up", "elements move along an axis by shift", "shift"},
    {"shuffle_down", "elements move along an axis by shift", "shift"},
    {"associative_scan", "a scan by a function of your own is a macro of shift and where: vasm(5)", "shift"},
    {"relu", "relu x is max of x and 0.0", "max"},
    {"clamp", "the instruction is 'clip x, low, high'", "clip"},
    {"sum", "'reduce sum, %x, axis', or (version 7) 'sum(%x, axis)'", "reduce"},
    {"arange", "the indices along an axis are iota", "iota"},
    {"program_id", "the block's place is block.x, block.y and block.z", NULL},
    {"zeros", "'alloc-register f32[16, 16], init 0.0'", "alloc-register"},
    {"full", "'alloc-register f32[16, 16], init 0.0'", "alloc-register"},
    {"broadcast", "element-wise instructions broadcast by themselves", NULL},
    {"select", "the instruction is 'where condition, x, y'; of scalars 'condition ? x : y'", "where"},
    {"dot", "matrices are multiplied by mma", "mma"},
    {"matmul", "matrices are multiplied by mma", "mma"},
    {"load", "load-global or load-shared", "load-global"},
    {"store", "store-global or store-shared", "store-global"},
    {"print", "print-tensor", "print-tensor"},
    {"mov", "'%a = %b' copies a register tensor or a scalar", NULL},
    {"copy", "'%a = %b' copies a register tensor, copy-async from global to shared memory", "copy-async"},
    {"barrier", "the threads of a block wait for each other at sync, those of a warp at sync-warp", "sync"},
    {"syncthreads", "the threads of a block wait for each other at sync", "sync"},
    {"__syncthreads", "the threads of a block wait for each other at sync", "sync"},
    /* control */
    {"return", "exit ends the block", "exit"},
    {"ret", "exit ends the block", "exit"},
    {"elseif", "written 'elif'", NULL},
    {"elsif", "written 'elif'", NULL},
    /* types */
    {"float", "the type is f32", NULL},
    {"float16", "the type is f16", NULL},
    {"float32", "the type is f32", NULL},
    {"half", "the type is f16", NULL},
    {"fp16", "the type is f16", NULL},
    {"fp32", "the type is f32", NULL},
    {"double", "the type is f64", NULL},
    {"bfloat16", "the type is bf16", NULL},
    {"int", "the type is i32", NULL},
    {"int8", "the type is i8", NULL},
    {"int32", "the type is i32", NULL},
    {"int64", "the type is i64", NULL},
    {"uint8", "the type is u8", NULL},
    {"uint32", "the type is u32", NULL},
    {"size_t", "the type is i64", NULL},
    {"fp8", "the types are f8_e4m3 and f8_e5m2", NULL},
    {"fp4", "the type is f4_e2m1", NULL},
    {"int4", "the type is i4, or u4", NULL},
    /* values */
    {"blockIdx", "the block's place is block.x, block.y and block.z", NULL},
    {"gridDim", "the blocks are counted by grid.x, grid.y and grid.z", NULL},
    {"threadIdx", "an instruction is of the whole block; which thread has an element is said by its layout",
     NULL},
    {"tid", "an instruction is of the whole block; which thread has an element is said by its layout", NULL},
    {0},
};

const char *tvm_foreign_hint(const char *word, size_t length) {
    for (const tvm_foreign *row = tvm_foreign_words; row->word; row++)
        if (strlen(row->word) == length && memcmp(row->word, word, length) == 0) return row->hint;
    return NULL;
}
