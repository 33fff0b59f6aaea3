/* What the host pays without a GPU, on the tests' stand-in for the driver: loading a program, choosing a
 * variant of its entries for a shape that was asked for before and for one that is new, and a whole launch,
 * which the stand-in takes without doing anything. Of each the least of many repetitions, which is what a
 * busy machine can repeat.
 *
 *   host_cost FILE.vbc...      from the build folder, where tests/fake/libcuda.so.1 lies */
#include <dlfcn.h>

#include "bare.h"
#include "runtime.h"

enum { LOADS = 40, ROUNDS = 200, SHAPES = 64, REPEATS = 16, ROWS = 5 };

/* Rows of a matmul; the bars are for a file that has a u4 matmul. */
static const int rows[ROWS] = {8, 32, 64, 128, 1024};

static void fail(const char *what, const char *why) {
    fprintf(stderr, "host_cost: %s: %s\n", what, why);
    exit(1);
}

static double least(double a, double b) {
    return a < b ? a : b;
}

/* ---- loading ---- */

static void time_load(tvm_context *context, const char *path) {
    double load = 1e30;
    for (int i = 0; i < LOADS; i++) {
        tvm_program *program;
        double start = microseconds();
        tvm_status status = tvm_load_file(context, path, &program);
        load = least(load, microseconds() - start);
        if (status) fail(path, tvm_message(context));
        tvm_program_free(program);
    }
    printf("%s: load %.3f ms\n", path, load * 1e-3);
}

/* ---- choosing ---- */

/* The shape number `i` with so many rows: the first integer is the rows, the others are sizes of a layer; no
 * two numbers have the same. */
static void set_shape(const tvm_kernel *entry, int m, unsigned i, tvm_scalar *scalars) {
    unsigned integers = 0;
    for (uint32_t p = 0; p < entry->kernel->param_count; p++) {
        const tvm_slot *slot = &entry->kernel->slots[p];
        scalars[p].u = 0;
        if (slot->kind != TVM_SLOT_SCALAR) continue;
        if (slot->dtype.kind == TVM_KIND_FLOAT)
            scalars[p].f = 1;
        else if (slot->dtype.kind != TVM_KIND_BOOL)
            scalars[p].i =
                integers == 0 ? m : 4096 + 128 * (int64_t)(integers == 1 ? i % 256 : i / 256 % 256);
        integers += slot->dtype.kind == TVM_KIND_INT;
    }
}

static const char *chosen(const tvm_kernel *entry, const tvm_scalar *scalars) {
    tvm_launch_env env = tvm_context_launch_env(entry->code->context);
    uint32_t index;
    env.scalars = scalars;
    if (tvm_variants_choose(entry->variants, &env, &index, NULL)) return "none";
    return tvm_kernel_name(&entry->code->functions[entry->entry->cases[index].kernel]);
}

static double choose(const tvm_kernel *entry, tvm_scalar (*scalars)[TVM_MAX_PARAMS], unsigned count,
                     unsigned repeats) {
    tvm_launch_env env = tvm_context_launch_env(entry->code->context);
    uint32_t index;
    double start = microseconds();
    for (unsigned r = 0; r < repeats; r++)
        for (unsigned i = 0; i < count; i++) {
            env.scalars = scalars[i];
            if (tvm_variants_choose(entry->variants, &env, &index, NULL)) return -1;
        }
    return (microseconds() - start) * 1e3 / count / repeats;
}

/* In nanoseconds: of one shape again and again, and of shapes none of which was there before. */
static void time_choice(const tvm_kernel *entry, int m) {
    static tvm_scalar scalars[SHAPES][TVM_MAX_PARAMS];
    double repeated = 1e30, fresh = 1e30;
    unsigned next = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < SHAPES; i++) set_shape(entry, m, next++, scalars[i]);
        fresh = least(fresh, choose(entry, scalars, SHAPES, 1));
        repeated = least(repeated, choose(entry, scalars, 1, SHAPES * REPEATS));
    }
    if (repeated < 0 || fresh < 0)
        printf("  %s, %d rows: serves none of the shapes asked for\n", tvm_kernel_name(entry), m);
    else
        printf("  %s, %4d rows: choice %5.0f ns repeated, %5.0f ns new; %s\n", tvm_kernel_name(entry), m,
               repeated, fresh, chosen(entry, scalars[0]));
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: host_cost FILE.vbc...\n");
        return 2;
    }
    if (!dlopen("tests/fake/libcuda.so.1", RTLD_NOW)) fail("tests/fake/libcuda.so.1", dlerror());
    tvm_context_options options = {.device = TVM_DEVICE_CUDA};
    tvm_context *context = NULL;
    if (tvm_context_create(&options, &context)) fail("tvm_context_create", tvm_message(context));
    for (int f = 1; f < argc; f++) {
        tvm_program *program;
        time_load(context, argv[f]);
        if (tvm_load_file(context, argv[f], &program)) fail(argv[f], tvm_message(context));
        for (size_t k = 0; k < tvm_kernel_count(program); k++)
            for (int r = 0; tvm_kernel_at(program, k)->entry && r < ROWS; r++)
                time_choice(tvm_kernel_at(program, k), rows[r]);
        tvm_program_free(program);
    }
    tvm_context_free(context);
    return 0;
}
