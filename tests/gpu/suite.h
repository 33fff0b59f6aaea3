/* The GPU suite: every test runs a kernel on the interpreter and on the GPU from the same bytes and compares.
 */
#ifndef TVM_TESTS_GPU_SUITE_H
#define TVM_TESTS_GPU_SUITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tvm.h"
#include "types.h"

typedef struct suite suite;
typedef struct gpu_test gpu_test;

struct gpu_test {
    char name[128];
    uint8_t *bytecode; /* malloc'ed; NULL: the program was refused */
    size_t size;
    bool (*run)(suite *s, const gpu_test *test);
    tvm_dtype type;
    const void *data; /* of `run`'s own */
    bool few;         /* of its kernels are launched: they are made then, not ahead */
};

typedef struct gpu_group {
    const char *name;
    bool beside; /* its tests may run at the same time */
    gpu_test *tests;
    size_t count, capacity;
} gpu_group;

struct suite {
    tvm_context *cpu, *gpu;
    tvm_context *model; /* an interpreter with the GPU's target and multiprocessors */
    unsigned target;    /* of the GPU: 90, ... */
    const char *cases, *programs;
    unsigned passed, failed, skipped;
};

/* One argument: a scalar, or a tensor with its contents (zeros when bytes is NULL). */
typedef struct gpu_arg {
    bool tensor;
    int64_t scalar;
    double number; /* of a scalar that is a float */
    tvm_dtype type;
    size_t count; /* elements */
    const void *bytes;
    double tolerance; /* 0: bit for bit (any NaN for a NaN); else relative to max(1, |value|) */
    unsigned units;   /* of floats: codes of the same sign may lie so far apart, units in the last place */
} gpu_arg;
#define ARG_NUMBER(value)  ((gpu_arg){.scalar = (int64_t)(value), .number = (double)(value)})
#define ARG_SCALAR(value)  ARG_NUMBER(value)
#define ARG_IN(t, n, data) ((gpu_arg){.tensor = true, .type = (t), .count = (n), .bytes = (data)})
#define ARG_OUT(t, n)      ARG_IN(t, n, NULL)
enum { GPU_MAX_ARGS = 24 };

static inline size_t gpu_arg_bytes(const gpu_arg *arg) {
    return (arg->count * arg->type.bits + 7) / 8;
}

/* Room for one more test of a group; assembles its program (text, or the file of that name when text is
 * NULL). */
gpu_test *gpu_add(gpu_group *group, const char *name, const char *text, const char *file,
                  const char *const *defines, size_t define_count);

/* Has a block on the GPU as much shared memory as the kernel takes? Older targets have less than some do. */
bool gpu_has_room(tvm_kernel *kernel);
/* Launches kernel `name` of the program there and gives back the tensors' contents (malloc'ed, zeroed
 * first); false with the reason printed. */
bool gpu_launch_code(tvm_context *context, tvm_program *code, const gpu_test *test, const char *name,
                     const gpu_arg *args, size_t count, uint8_t *outputs[GPU_MAX_ARGS]);
/* The same, of the test's program, which is loaded for it. */
bool gpu_launch(tvm_context *context, const gpu_test *test, const char *name, const gpu_arg *args,
                size_t count, uint8_t *outputs[GPU_MAX_ARGS]);
/* On both, and compares every tensor. */
bool gpu_run_both(suite *s, const gpu_test *test, const char *name, const gpu_arg *args, size_t count);
/* Twice on the GPU, which gives the same bits, whichever blocks do what. */
bool gpu_run_again(suite *s, const gpu_test *test, const char *name, const gpu_arg *args, size_t count);
bool gpu_same(const char *name, const char *tensor, const gpu_arg *arg, const uint8_t *cpu,
              const uint8_t *gpu);

/* The groups. */
void gpu_add_attention(suite *s, gpu_group *group);
void gpu_add_attention_decode(suite *s, gpu_group *group);
void gpu_add_cases(suite *s, gpu_group *group);
void gpu_add_casts(suite *s, gpu_group *group);
void gpu_add_elementwise(suite *s, gpu_group *group);
void gpu_add_experts(suite *s, gpu_group *group);
void gpu_add_experts8(suite *s, gpu_group *group);
void gpu_add_litmus(suite *s, gpu_group *group);
void gpu_add_math(suite *s, gpu_group *group);
void gpu_add_matmuls(suite *s, gpu_group *group);
void gpu_add_moves(suite *s, gpu_group *group);
void gpu_add_lowbits(suite *s, gpu_group *group); /* makes s->model */
void gpu_add_products(suite *s, gpu_group *group);
void gpu_add_interface(suite *s, gpu_group *group);
void gpu_add_graphs(suite *s, gpu_group *group);
void gpu_add_rows(suite *s, gpu_group *group);
void gpu_add_streams(suite *s, gpu_group *group);

/* `count` programs of tests/generate from seed `first` on, on the GPU and on the interpreter; prints what
 * differs, made smaller. */
bool gpu_random(tvm_context *gpu, uint64_t first, uint64_t count);

#endif
