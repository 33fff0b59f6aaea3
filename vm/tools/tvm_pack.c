/* tvm-pack: quantizes weights and packs them for a kernel, and back. See tvm-pack(1). */
#include "config.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "checkpoint.h"
#include "pack.h"
#include "tool.h"
#include "tool_files.h"


enum {
    DEFAULT_GROUP = 128,
    KEY_TYPE = 256,
    KEY_GROUP,
    KEY_ZERO,
    KEY_SCALE,
    KEY_LAYOUT,
    KEY_KERNEL,
    KEY_TENSOR,
    KEY_TRANSPOSE,
    KEY_QUANTIZED,
    KEY_SCALES,
    KEY_ZEROS,
    KEY_ACTIVATIONS,
    KEY_UNPACK,
    KEY_FROM,
    KEY_TO,
    KEY_ERRORS,
    KEY_THREADS,
    KEY_QUIET
};

static const struct argp_option options[] = {
    {"output", 'o', "FILE", 0, "the output (-: standard output)", 0},
    {"type", KEY_TYPE, "TYPE", 0,
     "u1 to u8, i2 to i8, f3_e1m1 to f8_e7m0 (default: the layout's); of --unpack f32 (default), f16, bf16",
     0},
    {"group", KEY_GROUP, "G", 0, "rows of a column that share a scale, or k for all (default: 128)", 0},
    {"zero", KEY_ZERO, "WHERE", 0,
     "mid (the default): unsigned codes are centred on half their range; per-group: on a zero point for each group",
     0},
    {"scale", KEY_SCALE, "TYPE", 0, "type of the scales, f16 (default) or bf16", 0},
    {"layout", KEY_LAYOUT, "FILE.vbc", 0, "lay the codes out as kernel pack of this program does", 0},
    {"kernel", KEY_KERNEL, "NAME", 0, "the kernel of --layout, if not pack", 0},
    {"tensor", KEY_TENSOR, "NAME", 0, "the tensor of a .safetensors file that has several", 0},
    {"transpose", KEY_TRANSPOSE, NULL, 0, "the input is [n, k], as torch's Linear has its weight", 0},
    {"quantized", KEY_QUANTIZED, "HOW", OPTION_ARG_OPTIONAL,
     "the input is codes: one to a byte (codes, the default), or rows of compact bit strings (bits)", 0},
    {"scales", KEY_SCALES, "HOW", 0,
     "mse (the default): scales of the least squared error; absmax: the least that hold the largest weight; "
     "with --quantized: FILE[:NAME], the scales [k/G, n]",
     0},
    {"activations", KEY_ACTIVATIONS, "FILE[:NAME]", 0,
     "k numbers, the mean squares of the inputs: a row's error counts so much (with --scales mse)", 0},
    {"zeros", KEY_ZEROS, "FILE[:NAME]", 0, "with --quantized, the zero points [k/G, n]", 0},
    {"unpack", KEY_UNPACK, NULL, 0, "the other way: packed weights to a .npy or .safetensors file", 0},
    {"from", KEY_FROM, "FORMAT", 0,
     "a quantized checkpoint, a folder or a file, with its codes and scales: auto, gptq, gptq_v2, gptq_p, awq, "
     "compressed-tensors, mxfp4, nvfp4, mxfp8, fp8-block, fp8, bitnet, bitsandbytes, mlx or gguf; with --type f32, "
     "f16 or bf16 its weights",
     0},
    {"to", KEY_TO, "FORMAT", 0,
     "write what was quantized, a folder or a file, as gptq or compressed-tensors; of another program's with --from",
     0},
    {"errors", KEY_ERRORS, NULL, 0,
     "with --from: print by how much each layer's weights change, of their norm", 0},
    {"threads", KEY_THREADS, "N", 0, "threads (default: one a core)", 0},
    {"quiet", KEY_QUIET, NULL, 0, "show no progress, and no warnings", 0},
    {0}};

static const char description[] =
    "Quantizes a matrix of weights [k, n] and packs it for a kernel.\v"
    "The input is .npy or .safetensors: F32, F16 or BF16. The output is .safetensors with the tensors packed, scales "
    "and, with --zero "
    "per-group, zeros; its metadata describe it.\n"
    "\n"
    "  tvm-pack --type u3 --group 128 --layout matmul_u3.vbc W.npy -o W.tvmw\n"
    "  tvm-run matmul_u3.vbc --kernel matmul m=16 a=@a.npy p=@W.tvmw:packed s=@W.tvmw:scales c=out:c.npy\n"
    "  tvm-pack --unpack --layout matmul_u3.vbc W.tvmw -o W3.npy\n"
    "  tvm-pack --from auto Llama-3.1-8B-GPTQ -o Llama-3.1-8B-tilus\n"
    "\n"
    "Exit status: 0 success, 1 an error, 2 wrong usage.";

typedef struct pack_settings {
    pack_options options;
    const char *from; /* a checkpoint's format; NULL: a matrix */
    const char *to;   /* the format that it is written in; NULL: ours */
    bool scale_given;
    bool grouped, unpack, quiet, errors;
    struct timespec start;
    bool shown; /* a progress bar is on the terminal */
} pack_settings;

/* ---- the command line ---- */

static bool parse_count(const char *text, uint64_t largest, uint64_t *count) {
    char *end;
    if (*text < '0' || *text > '9') return false;
    errno = 0;
    *count = strtoull(text, &end, 10);
    return !*end && !errno && *count && *count <= largest;
}

static bool parse_group(const char *text, uint64_t *group) {
    *group = 0;
    return !strcmp(text, "k") || !strcmp(text, "channel") || parse_count(text, INT64_MAX, group);
}

static void parse_type(const char *text, pack_settings *settings, struct argp_state *state) {
    if (!tvm_dtype_parse(text, strlen(text), &settings->options.type))
        argp_error(state, "--type: there is no type '%s'", text);
}

static void parse_words(int key, const char *arg, pack_options *pack, struct argp_state *state) {
    if (key == KEY_ZERO) {
        pack->own_zeros = !strcmp(arg, "per-group");
        if (!pack->own_zeros && strcmp(arg, "mid"))
            argp_error(state, "--zero is mid or per-group, not '%s'", arg);
    } else if (key == KEY_SCALE) {
        pack->scale_type = strcmp(arg, "bf16") ? TVM_F16 : TVM_BF16;
        if (strcmp(arg, "bf16") && strcmp(arg, "f16"))
            argp_error(state, "--scale is f16 or bf16, not '%s'", arg);
    } else {
        pack->given = arg && !strcmp(arg, "bits") ? PACK_BIT_STRINGS : PACK_CODES;
        if (arg && strcmp(arg, "bits") && strcmp(arg, "codes"))
            argp_error(state, "--quantized is codes or bits, not '%s'", arg);
    }
}

/* --scales is a way to find them, or where those of given codes are. */
static void check_scales(pack_options *pack, struct argp_state *state) {
    const char *how = pack->scales;
    if (pack->given == PACK_WEIGHTS) {
        pack->search = !how || strcmp(how, "absmax");
        pack->scales = NULL;
        if (pack->zeros || (how && strcmp(how, "absmax") && strcmp(how, "mse")))
            argp_error(state, "--scales is mse or absmax; a FILE, and --zeros, go with --quantized");
    }
    if (pack->activations && !pack->search) argp_error(state, "--activations goes with --scales mse");
}

/* Is the word one of a list with commas? */
static bool is_listed(const char *word, const char *list) {
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at++)
        if ((at == list || at[-1] == ' ') && (!at[length] || at[length] == ',')) return length > 0;
    return false;
}

static bool is_plain(tvm_dtype type) {
    return tvm_dtype_same(type, TVM_F32) || tvm_dtype_same(type, TVM_F16) || tvm_dtype_same(type, TVM_BF16);
}

static void check_from(const pack_settings *settings, struct argp_state *state) {
    const pack_options *pack = &settings->options;
    if (settings->to && strcmp(settings->to, "gptq") && strcmp(settings->to, "compressed-tensors"))
        argp_error(state, "--to %s: it is gptq or compressed-tensors", settings->to);
    if (settings->to && is_plain(pack->type)) argp_error(state, "--to writes codes, --type floats");
    if (settings->errors && !settings->from) argp_error(state, "--errors goes with --from");
    if (!settings->from) return;
    if (!is_listed(settings->from, tvm_checkpoint_formats()))
        argp_error(state, "--from %s: it is one of %s", settings->from, tvm_checkpoint_formats());
    if (settings->unpack || settings->grouped || pack->own_zeros || pack->given != PACK_WEIGHTS ||
        pack->transpose || pack->tensor || pack->layout || pack->scales || pack->zeros || pack->activations ||
        (pack->type.kind != TVM_KIND_NONE && !is_plain(pack->type)))
        argp_error(
            state,
            "with --from only --scale, --type f32, f16 or bf16, --errors, --threads and --quiet have a "
            "meaning");
}

static void check_usage(pack_settings *settings, struct argp_state *state) {
    pack_options *pack = &settings->options;
    if (!pack->input) argp_error(state, "an input file is expected");
    if (!pack->output) argp_error(state, "an output is expected: -o FILE");
    bool scales = pack->scales || pack->activations;
    if (settings->to && !settings->from) settings->from = "tilusvm";
    check_from(settings, state);
    check_scales(pack, state);
    if (pack->kernel && !pack->layout) argp_error(state, "--kernel goes with --layout");
    if (!settings->grouped && pack->given == PACK_WEIGHTS) pack->group = DEFAULT_GROUP;
    if (!settings->unpack) return;
    pack->search = false;
    if (settings->grouped || scales || pack->own_zeros || pack->given != PACK_WEIGHTS || pack->transpose ||
        pack->tensor)
        argp_error(state,
                   "with --unpack only --layout, --kernel, --type, --threads and --quiet have a meaning");
    if (pack->type.kind != TVM_KIND_NONE && !is_plain(pack->type))
        argp_error(state, "--unpack makes f32, f16 or bf16");
}

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    pack_settings *settings = state->input;
    pack_options *pack = &settings->options;
    uint64_t count;
    switch (key) {
    case 'o':
        pack->output = arg;
        break;
    case KEY_TYPE:
        parse_type(arg, settings, state);
        break;
    case KEY_GROUP:
        settings->grouped = true;
        if (!parse_group(arg, &pack->group)) argp_error(state, "--group %s: a number or k is expected", arg);
        break;
    case KEY_SCALE:
        settings->scale_given = true;
        parse_words(key, arg, pack, state);
        break;
    case KEY_ZERO:
    case KEY_QUANTIZED:
        parse_words(key, arg, pack, state);
        break;
    case KEY_LAYOUT:
        pack->layout = arg;
        break;
    case KEY_KERNEL:
        pack->kernel = arg;
        break;
    case KEY_TENSOR:
        pack->tensor = arg;
        break;
    case KEY_TRANSPOSE:
        pack->transpose = true;
        break;
    case KEY_SCALES:
        pack->scales = arg;
        break;
    case KEY_ZEROS:
        pack->zeros = arg;
        break;
    case KEY_ACTIVATIONS:
        pack->activations = arg;
        break;
    case KEY_FROM:
        settings->from = arg;
        break;
    case KEY_TO:
        settings->to = arg;
        break;
    case KEY_ERRORS:
        settings->errors = true;
        break;
    case KEY_UNPACK:
        settings->unpack = true;
        break;
    case KEY_THREADS:
        if (!parse_count(arg, 4096, &count))
            argp_error(state, "--threads %s: a number from 1 to 4096 is expected", arg);
        pack->threads = (unsigned)count;
        break;
    case KEY_QUIET:
        settings->quiet = true;
        break;
    case ARGP_KEY_ARG:
        if (pack->input) argp_error(state, "one input at a time: '%s' and '%s'", pack->input, arg);
        pack->input = arg;
        break;
    case ARGP_KEY_END:
        check_usage(settings, state);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* ---- progress ---- */

/* A bar, when it has taken two seconds. */
static void show_progress(void *closure, double fraction) {
    enum { WIDTH = 40, AFTER = 2 };
    pack_settings *settings = closure;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    double seconds = (double)(now.tv_sec - settings->start.tv_sec) +
                     (double)(now.tv_nsec - settings->start.tv_nsec) * 1e-9;
    if (seconds < AFTER) return;
    char bar[WIDTH + 1] = "";
    int filled = (int)(fraction * WIDTH);
    for (int i = 0; i < WIDTH; i++) bar[i] = i < filled ? '#' : '.';
    double left = fraction > 0.01 ? seconds / fraction - seconds : 0;
    fprintf(stderr, "\r[%s] %3.0f%%, %.0f s left ", bar, fraction * 100, left);
    settings->shown = true;
}

static void print_warnings(const tvm_diags *warnings) {
    for (size_t i = 0; i < warnings->count; i++) {
        const tvm_diag *warning = &warnings->items[i];
        fprintf(stderr, "%s: warning: %s\n", warning->file ? warning->file : "tvm-pack", warning->message);
        if (warning->hint) fprintf(stderr, "    hint: %s\n", warning->hint);
    }
}

static void print_error(void *closure, const char *layer, const char *from, double error) {
    (void)closure;
    printf("%s %s %.3g\n", layer, from, error);
}

static tvm_status import(const pack_settings *settings, tvm_diags *diags) {
    const pack_options *pack = &settings->options;
    checkpoint_options how = {.input = pack->input,
                              .output = pack->output,
                              .from = settings->from,
                              .to = settings->to,
                              .threads = pack->threads,
                              .plain = pack->type,
                              .progress = pack->progress,
                              .warnings = pack->warnings};
    if (settings->scale_given) how.scale_type = pack->scale_type;
    if (settings->errors) how.tell = print_error;
    return tvm_checkpoint_import(&how, diags);
}

/* What is read, and what is written: it is none of the former, and what its name says. */
static tvm_status check_files(const pack_settings *settings, tvm_diags *diags) {
    const pack_options *pack = &settings->options;
    const char *suffix = strrchr(pack->output, '.');
    struct stat found;
    tvm_tool_files files = {0};
    tvm_file_kind kind = TVM_FILE_SAFETENSORS;
    if (settings->unpack && !(suffix && !strcmp(suffix, ".safetensors"))) kind = TVM_FILE_NPY;
    if (settings->from && !stat(pack->input, &found) && S_ISDIR(found.st_mode)) kind = TVM_FILE_FOLDER;
    tvm_tool_reads(&files, pack->input);
    if (pack->layout) tvm_tool_reads(&files, pack->layout);
    if (pack->scales) tvm_tool_reads_tensor(&files, pack->scales);
    if (pack->zeros) tvm_tool_reads_tensor(&files, pack->zeros);
    if (pack->activations) tvm_tool_reads_tensor(&files, pack->activations);
    tvm_status status = tvm_tool_writes(&files, pack->output, kind, diags);
    tvm_tool_files_free(&files);
    return status;
}

int main(int argc, char **argv) {
    static const struct argp parser = {options, parse_option, "FILE -o FILE", description, NULL, NULL, NULL};
    pack_settings settings = {.options = {.scale_type = TVM_F16}};
    tvm_diags diags = {0}, warnings = {0};
    tvm_status status =
        tvm_tool_parse(&parser, "tvm-pack (Tilus VM) " PACKAGE_VERSION, argc, argv, &settings, &diags);
    clock_gettime(CLOCK_MONOTONIC, &settings.start);
    if (!settings.quiet) settings.options.warnings = &warnings;
    if (!settings.quiet && isatty(STDERR_FILENO))
        settings.options.progress = (tvm_work_progress){.show = show_progress, .closure = &settings};
    if (!status) status = check_files(&settings, &diags);
    if (!status)
        status = settings.from     ? import(&settings, &diags)
                 : settings.unpack ? tvm_unpack(&settings.options, &diags)
                                   : tvm_pack(&settings.options, &diags);
    if (settings.shown) fprintf(stderr, "\r%70s\r", "");
    print_warnings(&warnings);
    tvm_diags_free(&warnings);
    return tvm_tool_end("tvm-pack", status, &diags);
}
