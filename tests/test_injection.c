/* Every allocation, file operation, thread and driver call failed once, one after the other, and from the nth
 * on: nothing leaks, nothing crashes, a failure says something, and the same calls succeed afterwards. A
 * launch that is prepared makes no other calls than the driver's launch. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "check_kit.h"
#include <dirent.h>
#include <unistd.h>

#include "cuda_kit.h"
#include "codegen.h"
#include "extent_kit.h"
#include "fileio.h"
#include "npy.h"
#include "pack.h"
#include "run_args.h"
#include "run_bind.h"
#include "shim.h"
#include "suite_kit.h"

enum { ELEMENTS = 16, SITES_MAX = 200000 };
static cuda_kit kit;
static long known_mistakes; /* of the driver's caller */
static char vbc_path[96], npy_path[96], out_path[96], trace_path[96], tensors_path[96];

typedef struct outcome {
    tvm_status status;
    const char *step; /* that failed */
    bool silent;      /* without a message */
    bool wrong;       /* succeeded with the wrong result */
    char message[512];
} outcome;

/* ---- what is run ---- */

static void note(outcome *o, tvm_status status, const char *step, const char *message) {
    if (!status || o->status) return;
    o->status = status;
    o->step = step;
    o->silent = !*message;
    snprintf(o->message, sizeof o->message, "%s", message);
}

/* A step of the scenario: skipped after a failure. */
#define STEP(context, call)                                                                                  \
    do {                                                                                                     \
        if (!o->status) {                                                                                    \
            tvm_status stepped = (call);                                                                     \
            note(o, stepped, #call, tvm_message(context));                                                   \
        }                                                                                                    \
    } while (0)

typedef struct runtime {
    tvm_context *context;
    tvm_program *program, *copy, *assembled;
    tvm_kernel *kernel;
    void *x, *y;
} runtime;

/* y = 2 x, by way of a temporary, as a graph; twice, the second time with another scalar. */
static void use_graph(const runtime *r, outcome *o) {
    int64_t shape[] = {ELEMENTS};
    tvm_tensor tensor = {.ndim = 1, .dtype = {TVM_TENSOR_FLOAT, 32, 1}, .shape = shape};
    tvm_value half = {.f = 0.5}, two = {.f = 2};
    const tvm_graph_argument first[] = {{.value.i = ELEMENTS}, {.name = "f"}, {.name = "x"}, {.name = "t"}};
    const tvm_graph_argument second[] = {{.value.i = ELEMENTS}, {.value.f = 1}, {.name = "t"}, {.name = "y"}};
    tvm_graph *graph = NULL;
    char *report = NULL;
    tensor.device.device_type = tvm_device(r->context) == TVM_DEVICE_CPU ? TVM_TENSOR_CPU : TVM_TENSOR_CUDA;
    STEP(r->context, tvm_graph_create(r->context, "g", &graph));
    tensor.data = r->x;
    STEP(r->context, tvm_graph_add_tensor(graph, "x", TVM_GRAPH_INPUT, &tensor));
    tensor.data = r->y;
    STEP(r->context, tvm_graph_add_tensor(graph, "y", TVM_GRAPH_OUTPUT, &tensor));
    STEP(r->context, tvm_graph_add_tensor(graph, "t", TVM_GRAPH_TEMPORARY, &tensor));
    STEP(r->context, tvm_graph_add_scalar(graph, "f", "f32", &half));
    STEP(r->context, tvm_graph_add_launch(graph, "first", r->kernel, first, 4, NULL, 0));
    STEP(r->context, tvm_graph_add_launch(graph, "second", r->kernel, second, 4, NULL, 0));
    STEP(r->context, tvm_graph_finish(graph));
    STEP(r->context, tvm_graph_launch(graph, NULL));
    STEP(r->context, tvm_graph_set_scalar(graph, "f", &two));
    STEP(r->context, tvm_graph_launch(graph, NULL));
    STEP(r->context, tvm_graph_report(graph, &report));
    free(report);
    tvm_graph_free(graph);
}

static void use_memory(runtime *r, outcome *o) {
    static const float from[ELEMENTS] = {1, 2, 3, 4, 5, 6, 7, 8};
    float to[ELEMENTS] = {0};
    tvm_value values[] = {{.i = ELEMENTS}, {.f = 2}, {.data = NULL}, {.data = NULL}};
    double microseconds;
    STEP(r->context, tvm_memory_alloc(r->context, sizeof to, &r->x));
    STEP(r->context, tvm_memory_alloc(r->context, sizeof to, &r->y));
    STEP(r->context, tvm_memory_write(r->context, r->x, from, sizeof from));
    STEP(r->context, tvm_memory_write(r->context, r->y, from, sizeof from));
    values[2].data = r->x;
    values[3].data = r->y;
    STEP(r->context, tvm_launchv(r->kernel, NULL, values, 4));
    STEP(r->context, tvm_launch(r->kernel, NULL, ELEMENTS, 2.0, r->x, r->y));
    if (!o->status) use_graph(r, o);
    tvm_kernel *tensors = NULL;
    tvm_value n = {.i = ELEMENTS};
    STEP(r->context, tvm_get_kernel(r->program, "tensors", &tensors));
    STEP(r->context, tvm_launch(tensors, NULL, ELEMENTS));
    STEP(r->context, tvm_reserve(tensors, &n, &n, 1));
    STEP(r->context, tvm_launch(tensors, &n, ELEMENTS));
    STEP(r->context, tvm_launch(tensors, &n, 100 * ELEMENTS));
    STEP(r->context, tvm_time(tensors, &n, 1, 3, &microseconds));
    tvm_kernel *entry = NULL;
    STEP(r->context, tvm_get_kernel(r->program, "any", &entry));
    STEP(r->context, tvm_prepare(entry));
    STEP(r->context, tvm_reserve(entry, &to, &n, 1));
    STEP(r->context, tvm_launchv(entry, &to, &n, 1));
    tvm_kernel_info info;
    STEP(r->context, tvm_get_kernel_info(tensors, &info));
    tvm_function bound = NULL;
    STEP(r->context, tvm_bind(entry, &bound));
    STEP(r->context, ((int (*)(int32_t))bound)(ELEMENTS));
    STEP(r->context, tvm_unbind(entry, bound));
    STEP(r->context, tvm_synchronize(r->context, NULL));
    STEP(r->context, tvm_trace_stop(r->context));
    STEP(r->context, tvm_memory_read(r->context, to, r->y, sizeof to));
    STEP(r->context, tvm_time(r->kernel, values, 4, 3, &microseconds));
    float expected = tvm_device(r->context) == TVM_DEVICE_CPU ? 2 : 1; /* the fake driver computes nothing */
    for (int i = 0; !o->status && i < ELEMENTS; i++) o->wrong |= to[i] != expected * from[i];
}

/* A call that fails may have released the memory all the same. */
static void release(runtime *r, void *data, outcome *o) {
    long before = kit.driver ? kit.driver->live() : 0;
    tvm_status status = r->context ? tvm_memory_free(r->context, data) : TVM_OK;
    if (!status) return;
    note(o, status, "tvm_memory_free", tvm_message(r->context));
    if (kit.driver && kit.driver->live() == before) tvm_memory_free(r->context, data);
}

static outcome run_device(tvm_device_kind kind) {
    outcome result = {0}, *o = &result;
    runtime r = {0};
    tvm_param_info info;
    int64_t shape[8];
    size_t bytes;
    tvm_value values[4] = {{.i = ELEMENTS}};
    tvm_context_options options = {.device = kind, .threads = 2, .cache_dir = kit.cache};
    STEP(r.context, tvm_context_create(&options, &r.context));
    STEP(r.context, tvm_trace_start(r.context, trace_path));
    STEP(r.context, tvm_load_file(r.context, vbc_path, &r.program));
    STEP(r.context, tvm_load(r.context, kit.bytecode, kit.bytecode_size, &r.copy));
    STEP(r.context, tvm_assemble(r.context, kit_source, sizeof kit_source - 1, NULL, &r.assembled));
    STEP(r.context, tvm_get_kernel(r.program, "scale", &r.kernel));
    STEP(r.context, tvm_param(r.kernel, 2, &info));
    STEP(r.context, tvm_param_shape(r.kernel, 2, values, 4, shape, &bytes));
    STEP(r.context, tvm_prepare(r.kernel));
    if (!o->status) use_memory(&r, o);
    release(&r, r.x, o);
    release(&r, r.y, o);
    tvm_program_free(r.assembled);
    tvm_program_free(r.copy);
    tvm_program_free(r.program);
    tvm_context_free(r.context);
    return result;
}

static outcome run_cpu(void) {
    return run_device(TVM_DEVICE_CPU);
}

#ifdef HAVE_CUDA_H

static outcome run_cuda(void) {
    return run_device(TVM_DEVICE_CUDA);
}

static outcome run_cuda_cold(void) {
    return run_device(TVM_DEVICE_CUDA);
}

#endif

/* ---- what is run: text, files, tools ---- */

static void step_diags(outcome *o, tvm_status status, const char *step, tvm_diags *diags) {
    const char *message = diags->count ? diags->items[0].message : diags->lost ? "(lost)" : "";
    note(o, status, step, message);
    tvm_diags_free(diags);
}

#define DIAGS(call)                                                                                          \
    do {                                                                                                     \
        if (!o->status) {                                                                                    \
            tvm_status stepped = (call);                                                                     \
            step_diags(o, stepped, #call, &diags);                                                           \
        }                                                                                                    \
    } while (0)

static outcome run_assembler(void) {
    outcome result = {0}, *o = &result;
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL, *again = NULL;
    uint8_t *bytes = NULL;
    size_t size = 0;
    char *text = NULL;
    DIAGS(tvm_assemble_text(kit_source, sizeof kit_source - 1, "kit.vasm", NULL, &program, &diags));
    DIAGS(tvm_vbc_write(program, true, &bytes, &size, &diags));
    DIAGS(tvm_vbc_read(bytes, size, NULL, &again, &diags));
    DIAGS(tvm_disassemble(again, &text, &diags));
    DIAGS(tvm_vbc_write_file(again, out_path, true, &diags));
    if (!o->status) result.wrong = !strstr(text, "store-shared");
    tvm_ir_program_free(program);
    tvm_ir_program_free(again);
    free(bytes);
    free(text);
    return result;
}

/* Does the file end with these bytes? */
static void expect_end(outcome *o, const char *path, const void *bytes, size_t size) {
    tvm_diags diags = {0};
    uint8_t *file = NULL;
    size_t length = 0;
    DIAGS(tvm_file_read(path, 1 << 20, &file, &length, &diags));
    if (!o->status && (length < size || memcmp(file + length - size, bytes, size) != 0)) o->wrong = true;
    free(file);
}

/* Included files, defines, and the pictures that tvm-as prints. */
static outcome run_assembler_files(void) {
    static const char text[] =
        ".vasm 1\n.include \"part.vasminc\"\n.kernel k(x: global f32[WIDTH])\n"
        ".warps 1\n.grid 1\n    %v = load-global x[0], wide\n    store-global x[0], %v\n"
        ".end\n";
    const char *defines[] = {"WIDTH=64"}, *folders[] = {kit.folder};
    tvm_assembler_options options = {
        .defines = defines, .define_count = 1, .include_dirs = folders, .include_dir_count = 1};
    outcome result = {0}, *o = &result;
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    char *layout = NULL, *packing = NULL;
    const tvm_picture_request drawn = {.expression = "local(2,1).spatial(8,4).local(1,2)",
                                       .shared = "shared([16, 8], [16, 8], [8, 1])",
                                       .svg = true};
    const tvm_picture_request packed = {.expression = "u3"};
    DIAGS(tvm_assemble_text(text, sizeof text - 1, "/nowhere/text.vasm", &options, &program, &diags));
    DIAGS(tvm_print_layout(&drawn, &layout, &diags));
    DIAGS(tvm_print_packing(&packed, &packing, &diags));
    if (!o->status)
        o->wrong = program->layout_count != 1 || program->layouts[0].shape[0] != 64 || !*layout || !*packing;
    tvm_ir_program_free(program);
    free(layout);
    free(packing);
    return result;
}

/* Two products that wgmma does as one, and one that it is refused for, of weights that are left scaled. */
static outcome run_translator(void) {
    static const char text[] =
        ".vasm 2\n.layout A = spatial(4, 1).local(1, 4).mma.m16n8k16.A\n.layout C = spatial(4, 1).mma.m16n8k16.C\n"
        ".kernel k(q: global u4[64, 64], x: global f16[24, 64], s: global f16[64], y: global f32[64, 24])\n"
        ".warps 4\n.grid 1\n    %sx = alloc-shared f16[24, 64]\n    copy-async %sx, x\n    commit-group\n"
        "    wait-group 0\n    sync\n    %codes = load-global q, A\n"
        "    %pairs = cast-lowbit %codes, u4, packing pair\n    %half = cast-lowbit %pairs, f16\n"
        "    %w = sub %half, 8\n    %s2 = load-global s, squeeze(reduce(C, 1), 1)\n"
        "    %s16 = view %s2, f16, reduce(C, 1)\n    %scale = cast %s16, f32\n"
        "    %zero = alloc-register f32[64, 8], C, init 0.0\n"
        "    .for P = 0 to 3\n        %d${P} = mma %w, %sx[P * 8, 0], %zero, transpose_b, reassociate\n"
        "        .if P == 1\n            sync\n        .endif\n    .endfor\n"
        "    .for P = 0 to 3\n        %out = mul %d${P}, %scale\n        store-global y[0, P * 8], %out\n"
        "    .endfor\n.end\n";
    outcome result = {0}, *o = &result;
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    tvm_module *module = NULL;
    DIAGS(tvm_assemble_text(text, sizeof text - 1, "text.vasm", NULL, &program, &diags));
    DIAGS(tvm_translate(program, (tvm_target){90, 'a'}, &module, &diags));
    if (!o->status) o->wrong = !strstr(module->ptx, "m64n16k16") || !strstr(module->ptx, "\tmma.sync");
    tvm_module_free(module);
    tvm_ir_program_free(program);
    return result;
}

/* Text whose errors have places, source lines and hints: failing is right, with the same status or that of
 * memory. */
static outcome run_wrong_text(void) {
    static const char wrong[] =
        ".vasm 1\n.const N = 4, M = N * undefined_name\n.kernel k(x: global f32[n])\n"
        ".warps 1\n.grid 1\n    %v = laod-global x[0], spatial(32)\n    store-global x[0], %w\n.end\n";
    outcome result = {0}, *o = &result;
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    tvm_status status = tvm_assemble_text(wrong, sizeof wrong - 1, "wrong.vasm", NULL, &program, &diags);
    if (!status || program) o->wrong = true;
    tvm_ir_program_free(program);
    step_diags(o, status, "tvm_assemble_text", &diags);
    if (status == TVM_SYNTAX || status == TVM_INVALID) o->status = TVM_OK;
    return result;
}

/* Weights that are codes times a scale come back as they were. */
static outcome run_arrays(void) {
    static const float data[4][8] = {{1, -2, 7}, {4, 5}, {-6}, {7, 7}};
    static const int64_t shape[2] = {4, 8};
    outcome result = {0}, *o = &result;
    tvm_diags diags = {0};
    tvm_run_args args = {0};
    tvm_npy npy;
    pack_options pack = {.input = npy_path, .output = out_path, .threads = 2};
    char back[96];
    snprintf(back, sizeof back, "%s/back.npy", kit.folder);
    pack_options unpack = {.input = out_path, .output = back, .threads = 2};
    DIAGS(tvm_run_args_add(&args, "x=@file.npy,out:other.npy", &diags));
    DIAGS(tvm_run_args_add(&args, "n=17", &diags));
    tvm_run_args_free(&args);
    bool known = tvm_dtype_parse("i4", 2, &pack.type) && tvm_dtype_parse("f32", 3, &unpack.type) &&
                 tvm_dtype_parse("f16", 3, &pack.scale_type);
    if (!known || !tvm_npy_of(unpack.type, 2, shape, &npy)) o->wrong = true;
    DIAGS(tvm_npy_write(npy_path, &npy, data, &diags));
    DIAGS(tvm_pack(&pack, &diags));
    DIAGS(tvm_unpack(&unpack, &diags));
    if (!o->status) expect_end(o, back, data, sizeof data);
    return result;
}

/* What tvm-run does with its arguments: one tensor of a .npy file, one of a .safetensors file, one written.
 */
static outcome run_arguments(void) {
    outcome result = {0}, *o = &result;
    tvm_diags diags = {0};
    tvm_run_args args = {0};
    tvm_run_binding binding = {0};
    runtime r = {0};
    static const float twice[] = {2, 4, 6, 8};
    char from[128], to[128];
    snprintf(from, sizeof from, "x=@%s:t", tensors_path);
    snprintf(to, sizeof to, "y=zeros,out:%s/y.npy", kit.folder);
    tvm_context_options options = {.device = TVM_DEVICE_CPU, .threads = 1, .cache_dir = kit.cache};
    STEP(r.context, tvm_context_create(&options, &r.context));
    STEP(r.context, tvm_load_file(r.context, vbc_path, &r.program));
    STEP(r.context, tvm_get_kernel(r.program, "scale", &r.kernel));
    DIAGS(tvm_run_args_add(&args, from, &diags));
    DIAGS(tvm_run_args_add(&args, to, &diags));
    DIAGS(tvm_run_args_add(&args, "f=2", &diags));
    DIAGS(tvm_run_bind(r.context, r.kernel, &args, &binding, &diags));
    DIAGS(tvm_run_upload(&binding, &diags));
    STEP(r.context, tvm_launchv(r.kernel, NULL, binding.values, binding.count));
    DIAGS(tvm_run_download(&binding, &diags));
    if (!o->status) expect_end(o, strchr(to, '/'), twice, sizeof twice);
    tvm_run_unbind(&binding);
    tvm_run_args_free(&args);
    tvm_program_free(r.program);
    tvm_context_free(r.context);
    return result;
}

/* A launch in which the sanitizer finds something in each of its parts: finding it is right. */
static outcome run_sanitizer(void) {
    static const char text[] =
        ".vasm 3\n.kernel k(n: i32, x: global f16[n, 16], y: global f32[16, 8], sem: global i32[2])\n"
        ".warps 2\n.grid 2\n"
        "    %s = alloc-shared f16[16, 16]\n    %w = alloc-shared f16[16, 8], row_major\n    %b = alloc-barrier [1]\n"
        "    copy-async %s, x, warps [2, 1]\n    commit-group\n    wait-group 0\n    sync-warp\n"
        "    store-shared %w, alloc-register(f16[16, 8], spatial(16, 4).local(1, 2), init 1.0)\n    sync\n"
        "    role one warps 0 to 1\n        %a = load-shared %s, mma.m16n8k16.A\n"
        "        %c = mma %a, %w[0, 0], alloc-register(f32[16, 8], mma.m16n8k16.C), k 16\n"
        "        store-global y, %c\n        arrive-barrier %b\n    end\n"
        "    role two warps 1 to 2\n        wait-barrier %b\n        lock-semaphore sem[0], 0\n"
        "        atomic add sem[1], alloc-register(i32[1], replicated(32).local(1), init 1), order acq_rel\n"
        "        store-global y, load-global(y, spatial(16, 2).local(1, 4))\n        release-semaphore sem[0], 0\n"
        "    end\n.end\n";
    outcome result = {0}, *o = &result;
    tvm_context *context = NULL;
    tvm_program *program = NULL;
    tvm_kernel *kernel = NULL;
    static _Alignas(16) uint16_t x[16 * 16];
    static _Alignas(16) float y[16 * 8];
    static _Alignas(16) int32_t sem[2];
    tvm_context_options options = {.device = TVM_DEVICE_CPU, .threads = 1, .cache_dir = kit.cache};
    STEP(context, tvm_context_create(&options, &context));
    STEP(context, tvm_set_sanitizer(context, TVM_SANITIZE_JSON));
    STEP(context, tvm_assemble(context, text, sizeof text - 1, NULL, &program));
    STEP(context, tvm_get_kernel(program, "k", &kernel));
    if (!o->status) {
        tvm_status status = tvm_launch(kernel, NULL, 16, x, y, sem);
        /* what was found, unless memory for its text was what failed */
        const char *said = tvm_message(context);
        if (status == TVM_SANITIZER && !strstr(said, "\"race-global\"") && !strstr(said, "memory"))
            o->wrong = true;
        if (!status) o->wrong = true;
        if (status && status != TVM_SANITIZER) note(o, status, "tvm_launch", tvm_message(context));
    }
    tvm_program_free(program);
    tvm_context_free(context);
    return result;
}

/* ---- failing one call after the other ---- */

typedef struct scene {
    const char *name;
    outcome (*run)(void);
    bool cold;
    long least; /* calls that there are to fail, at the least: that they are counted at all */
} scene;

static const scene scenes[] = {
#ifdef HAVE_CUDA_H
    {"CUDA", run_cuda, false, 40},
    {"CUDA, cold", run_cuda_cold, true, 100},
#endif
    {"interpreter", run_cpu, false, 40},
    {"sanitizer", run_sanitizer, false, 40},
    {"assembler", run_assembler, false, 20},
    {"wrong text", run_wrong_text, false, 10},
    {"translator", run_translator, false, 40},
    {"included files", run_assembler_files, false, 20},
    {"arguments", run_arguments, false, 40},
    {"arrays", run_arrays, false, 20}};
enum { SCENES = sizeof scenes / sizeof *scenes, DRIVER_SCENES = 2 };

/* Files in a folder whose names hold `word`; all are removed with `empty`. */
static int files_of(const char *folder, const char *word, bool empty) {
    int count = 0;
    DIR *open = opendir(folder);
    for (struct dirent *item = open ? readdir(open) : NULL; item; item = readdir(open)) {
        if (item->d_name[0] == '.' && strspn(item->d_name, ".") == strlen(item->d_name)) continue;
        if (!strstr(item->d_name, word)) continue;
        if (empty) unlinkat(dirfd(open), item->d_name, 0);
        count++;
    }
    if (open) closedir(open);
    return count;
}

static int descriptors(void) {
    return files_of("/proc/self/fd", "", false);
}

static void assert_succeeds(const scene *s, long n, const char *failed) {
    outcome o = s->run();
    ck_assert_msg(!o.status && !o.wrong, "%s, after call %ld (%s) failed: then %s gives %d: %s", s->name, n,
                  failed, o.step ? o.step : "a wrong result", (int)o.status, o.message);
}

/* What must hold after a run in which call n failed. */
static void assert_clean(const scene *s, long n, const char *failed, const outcome *o, int open) {
    ck_assert_msg(!o->silent, "%s: %s fails without a message when call %ld (%s) fails", s->name, o->step, n,
                  failed);
    ck_assert_msg(!o->wrong, "%s: a wrong result when call %ld (%s) fails", s->name, n, failed);
    ck_assert_msg(!shim_live(), "%s: %ld blocks leak when call %ld (%s) fails, the first made by call %ld",
                  s->name, shim_live(), n, failed, shim_oldest());
    ck_assert_msg(descriptors() == open, "%s: a file stays open when call %ld (%s) fails", s->name, n,
                  failed);
    if (!kit.driver) return;
    ck_assert_msg(!kit.driver->live(), "%s: %ld objects of the driver leak when call %ld (%s) fails", s->name,
                  kit.driver->live(), n, failed);
    /* Without its context current a module cannot be unloaded: it goes with the context. */
    bool pushing = !strncmp(failed, "cuCtxPushCurrent", 16);
    ck_assert_msg(pushing || kit.driver->mistakes() == known_mistakes,
                  "%s: left to the context, or released twice, when call %ld (%s) fails", s->name, n, failed);
    known_mistakes = kit.driver->mistakes();
}

static void write_file(const char *path, const void *bytes, size_t size) {
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, size, file), size);
    ck_assert_int_eq(fclose(file), 0);
}

/* A .safetensors file: the header's length, the header, the data. */
static void write_tensors(void) {
    static const char header[] = "{\"t\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}";
    static const float data[] = {1, 2, 3, 4};
    uint8_t file[8 + sizeof header - 1 + sizeof data] = {sizeof header - 1};
    memcpy(file + 8, header, sizeof header - 1);
    memcpy(file + 8 + sizeof header - 1, data, sizeof data);
    snprintf(tensors_path, sizeof tensors_path, "%s/t.safetensors", kit.folder);
    write_file(tensors_path, file, sizeof file);
}

static void setup(void) {
    static const char part[] = ".const WIDTH = 32\n.layout wide = spatial(32).local(WIDTH / 32)\n";
    char path[96];
    kit_setup(&kit);
    write_tensors();
    snprintf(path, sizeof path, "%s/part.vasminc", kit.folder);
    write_file(path, part, sizeof part - 1);
    snprintf(vbc_path, sizeof vbc_path, "%s/kit.vbc", kit.folder);
    snprintf(trace_path, sizeof trace_path, "%s/trace.json", kit.folder);
    setenv("TILUSVM_LOG", "debug", 1);
    snprintf(out_path, sizeof out_path, "%s/log", kit.folder);
    setenv("TILUSVM_LOG_FILE", out_path, 1);
    snprintf(npy_path, sizeof npy_path, "%s/in.npy", kit.folder);
    snprintf(out_path, sizeof out_path, "%s/out.file", kit.folder);
    write_file(vbc_path, kit.bytecode, kit.bytecode_size);
}

static void teardown(void) {
    kit_teardown(&kit);
}

static void fail_each(const scene *s, bool on) {
    long n = 1;
    assert_succeeds(s, 0, "nothing");
    int open = descriptors();
    /* From one on: that each call has failed by itself was seen, so that every third will do. */
    for (; n < SITES_MAX; n += on && !test_all() ? 3 : 1) {
        if (s->cold) files_of(kit.cache, "", true);
        shim_start(n, on);
        outcome o = s->run();
        shim_stop();
        const char *failed = shim_failed();
        if (!failed) {
            ck_assert_msg(!o.status, "%s gives %d: %s", o.step, (int)o.status, o.message);
            break;
        }
        assert_clean(s, n, failed, &o, open);
        int left = files_of(kit.cache, ".tmp", true) + files_of(kit.folder, ".tmp", true);
        ck_assert_msg(on || !left || !strncmp(failed, "unlink", 6),
                      "%s: a temporary file stays when call %ld (%s) fails", s->name, n, failed);
        assert_succeeds(s, n, failed);
    }
    ck_assert_msg(n > s->least && n < SITES_MAX, "%s: %ld calls", s->name, n);
}

START_TEST(each_call_fails) {
    fail_each(&scenes[_i], false);
}
END_TEST

START_TEST(all_calls_fail_from_one_on) {
    fail_each(&scenes[_i], true);
}
END_TEST

#ifdef HAVE_CUDA_H

#include <cuda.h>

START_TEST(each_driver_call_fails) {
    static const CUresult results[] = {CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY,
                                       CUDA_ERROR_ILLEGAL_ADDRESS};
    const scene *s = &scenes[_i % DRIVER_SCENES];
    CUresult result = results[_i / DRIVER_SCENES];
    long n = 1;
    assert_succeeds(s, 0, "nothing");
    int open = descriptors();
    for (; n < SITES_MAX; n += result != results[0] && !test_all() ? 3 : 1) {
        if (s->cold) files_of(kit.cache, "", true);
        shim_start(0, false);
        kit.driver->fail_nth(n, (int)result);
        outcome o = s->run();
        const char *failed = kit.driver->failed();
        kit.driver->fail_nth(0, 0);
        shim_stop();
        if (!failed) break;
        assert_clean(s, n, failed, &o, open);
        assert_succeeds(s, n, failed);
    }
    ck_assert_msg(n > 40 && n < SITES_MAX, "%s: %ld driver calls", s->name, n);
}
END_TEST

/* With the context current and the kernel prepared. */
START_TEST(launch_makes_one_call) {
    char handle; /* a CUcontext of the caller's */
    tvm_context_options options = {
        .device = TVM_DEVICE_CUDA, .cuda_context = &handle, .cache_dir = kit.cache};
    static _Alignas(16) float x[ELEMENTS];
    runtime r = {0};
    tvm_value values[] = {{.i = ELEMENTS}, {.f = 2}, {.data = x}, {.data = x, .bytes = sizeof x}};
    unsetenv("TILUSVM_LOG");
    ck_assert_int_eq(tvm_context_create(&options, &r.context), TVM_OK);
    ck_assert_int_eq(tvm_load(r.context, kit.bytecode, kit.bytecode_size, &r.program), TVM_OK);
    ck_assert_int_eq(tvm_get_kernel(r.program, "scale", &r.kernel), TVM_OK);
    ck_assert_int_eq(tvm_prepare(r.kernel), TVM_OK);
    kit.driver->push(&handle);
    for (int i = 0; i < 3; i++) {
        kit.driver->reset();
        shim_start(0, false);
        tvm_status status = i ? tvm_launchv(r.kernel, x, values, 4)
                              : tvm_launch(r.kernel, x, ELEMENTS, 2.0, (void *)x, (void *)x);
        shim_stop();
        ck_assert_int_eq(status, TVM_OK);
        for (int kind = 0; kind < SHIM_KINDS; kind++) ck_assert_int_eq(shim_count((shim_kind)kind), 0);
        ck_assert_int_eq(kit.driver->calls("cuLaunchKernel"), 1);
        ck_assert_int_eq(kit.driver->calls("cuCtxGetCurrent"), 1);
        ck_assert_int_eq(kit.driver->calls(NULL), 2);
    }
    tvm_program_free(r.program);
    tvm_context_free(r.context);
}
END_TEST

#endif

int main(void) {
    Suite *suite = suite_create("injection");
    TCase *cases = tcase_create("injection");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, each_call_fails, 0, SCENES);
    tcase_add_loop_test(cases, all_calls_fail_from_one_on, 0, SCENES);
#ifdef HAVE_CUDA_H
    tcase_add_loop_test(cases, each_driver_call_fails, 0, 3 * DRIVER_SCENES);
    tcase_add_test(cases, launch_makes_one_call);
#endif
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
