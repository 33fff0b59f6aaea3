/* tvm-run: runs a kernel of a program, or a graph, on arrays. See tvm-run(1). */
#include "config.h"

#include <argp.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run_args.h"
#include "run_bind.h"
#include "run_cache.h"
#include "run_check.h"
#include "run_graph.h"
#include "run_limits.h"
#include "run_profile.h"
#include "runtime.h"
#include "source_file.h"
#include "tool.h"

enum {
    KEY_DEVICE = 256,
    KEY_KERNEL,
    KEY_TIME,
    KEY_QUIET,
    KEY_THREADS,
    KEY_MULTIPROCESSORS,
    KEY_TARGET,
    KEY_CHECK,
    KEY_TOLERANCE,
    KEY_ARGS,
    KEY_CACHE_STATS,
    KEY_CACHE_CLEAR,
    KEY_TRACE,
    KEY_PROFILE,
    KEY_SVG,
    KEY_NCU,
    KEY_LIMITS,
    KEY_SANITIZE,
    KEY_REQUIRE_PROOF,
    KEY_PERSISTENT
};

static const struct argp_option options[] = {
    {"device", KEY_DEVICE, "DEVICE", 0,
     "auto (the default: a GPU when there is one, else the interpreter), cpu, cuda or cuda:N", 0},
    {"kernel", KEY_KERNEL, "NAME", 0, "the kernel or entry to run; may be left out when the program has one",
     0},
    {"time", KEY_TIME, "REPEATS", OPTION_ARG_OPTIONAL,
     "print the median of the device time over repeated launches", 0},
    {"profile", KEY_PROFILE, NULL, 0,
     "print what the interpreter counts of a launch, and on a GPU its time beside what memory and the tensor cores "
     "take",
     0},
    {"svg", KEY_SVG, "FILE", 0, "of --profile on a GPU: draw the roofline", 0},
    {"ncu", KEY_NCU, "NAME,...", OPTION_ARG_OPTIONAL,
     "of --profile on a GPU: also the hardware's counters, by Nsight Compute's names", 0},
    {"quiet", KEY_QUIET, NULL, 0,
     "do not say which device is used, nor warn; of --time print the microseconds alone", 0},
    {"trace", KEY_TRACE, "FILE.json", 0,
     "write a timeline of translating, ptxas, loading and launching (Chrome's trace events)", 0},
    {"threads", KEY_THREADS, "N", 0, "threads of the interpreter (default: one a core)", 0},
    {"multiprocessors", KEY_MULTIPROCESSORS, "N", 0,
     "multiprocessors that kernels see in the interpreter (default: 4)", 0},
    {"target", KEY_TARGET, "N", 0,
     "target that launches see in the interpreter, such as 80 or 90 (default: 0)", 0},
    {"limits", KEY_LIMITS, "NAME=N,...", 0,
     "refuse a launch beyond scratch-bytes=N, blocks=N, or in the interpreter instructions=N, milliseconds=N; "
     "no-embedded-code: do not use machine code in the file",
     0},
    {"sanitize", KEY_SANITIZE, "json", OPTION_ARG_OPTIONAL,
     "check the launch in the interpreter: races, reads of what is not there, deadlocks, ...; json: reports as one "
     "document on standard output",
     0},
    {"require-proof", KEY_REQUIRE_PROOF, NULL, 0,
     "refuse a kernel whose certificate does not show it to be free of races on shared memory and of deadlock",
     0},
    {"persistent", KEY_PERSISTENT, NULL, 0, "of a graph: a GPU runs it as one persistent kernel", 0},
    {"check", KEY_CHECK, "LIBRARY:FUNCTION", 0,
     "call a C function with the same arguments, and compare the tensors", 0},
    {"tolerance", KEY_TOLERANCE, "T", 0,
     "with --check: the error |x - r| may be T * max(1, |r|), where r is the function's (default: two units in the "
     "last place of 1 for floats, else 0)",
     0},
    {"args", KEY_ARGS, "NAME=VALUE", OPTION_ARG_OPTIONAL, "the kernel's arguments follow", 0},
    {"verbose", 'v', NULL, 0, "say where the program's code comes from and what its cases cost", 0},
    {"cache-stats", KEY_CACHE_STATS, NULL, 0, "print the cache's folder, entries, bytes and bound; no file",
     0},
    {"cache-clear", KEY_CACHE_CLEAR, NULL, 0, "remove all entries of the cache; no file", 0},
    {0}};

static const char description[] =
    "Runs a kernel of a program, bytecode or text, or a graph, on a GPU or in the interpreter.\v"
    "VALUE is a number; for a tensor:\n"
    "  @FILE.npy      the contents of a file\n"
    "  @FILE:TENSOR   a tensor of a .safetensors file\n"
    "  rand[:SEED]    random: floats in [-1, 1), other types any code\n"
    "  zeros, iota    zeros; 0, 1, 2, ...\n"
    "  out:FILE.npy   zeros, and written to the file after the run\n"
    "  VALUE,out:FILE.npy  one of the others, and written after the run (-: to standard output)\n"
    "A number that is left out is taken from the shape of a file, where the kernel declares a tensor with that "
    "number as an extent.\n"
    "\n"
    "  tvm-run matmul.vbc --args m=16 a=@a.npy p=@p.npy s=@s.npy c=out:c.npy\n"
    "  tvm-run layer.graph --args m=16 x=@x.npy w=@w.npy y=out:y.npy\n"
    "\n"
    "Exit status: 0 success, 1 an error, 2 wrong usage.";

typedef struct run_settings {
    const char *file;
    const char *kernel;
    tvm_context_options context;
    tvm_limits limits;
    const char *trace; /* NULL: no timeline */
    bool time, profile, quiet, verbose, require_proof, persistent;
    const char *svg; /* of --profile; NULL: none */
    bool ncu;
    const char *counters; /* of ncu; NULL: the usual ones */
    const char **words;   /* of --args, as written */
    size_t word_count;
    tvm_sanitize sanitize;
    tvm_run_cache cache;
    unsigned repeats; /* 0: the device's default */
    const char *check;
    double tolerance; /* negative: the types' */
    tvm_run_args args;
    tvm_source_options source;
    tvm_tool_files files;
    tvm_diags diags;
} run_settings;

/* ---- the command line ---- */

static bool parse_count(const char *text, unsigned smallest, unsigned largest, unsigned *count) {
    char *end;
    if (*text < '0' || *text > '9') return false;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    *count = (unsigned)value;
    return !*end && !errno && value >= smallest && value <= largest;
}

static bool parse_tolerance(const char *text, double *tolerance) {
    char *end;
    *tolerance = strtod(text, &end);
    return end != text && !*end && isfinite(*tolerance) && *tolerance >= 0;
}

static bool parse_device(const char *text, tvm_context_options *context) {
    unsigned ordinal = 0;
    if (!strcmp(text, "auto"))
        context->device = TVM_DEVICE_AUTO;
    else if (!strcmp(text, "cpu"))
        context->device = TVM_DEVICE_CPU;
    else if (!strcmp(text, "cuda") ||
             (!strncmp(text, "cuda:", 5) && parse_count(text + 5, 0, 1023, &ordinal)))
        context->device = TVM_DEVICE_CUDA;
    else
        return false;
    context->ordinal = (int)ordinal;
    return true;
}

static void add_word(run_settings *settings, const char *word, struct argp_state *state) {
    if (tvm_run_is_arg(word)) {
        if (tvm_run_args_add(&settings->args, word, &settings->diags))
            argp_error(state, "%s",
                       settings->diags.count ? settings->diags.items[0].message : "out of memory");
        settings->words[settings->word_count++] = word;
    } else if (settings->file) {
        argp_error(state, "'%s' is not NAME=VALUE, and the file is '%s'", word, settings->file);
    } else {
        settings->file = word;
    }
}

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    run_settings *settings = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &settings->source;
        break;
    case KEY_DEVICE:
        if (!parse_device(arg, &settings->context))
            argp_error(state, "'%s' is not auto, cpu, cuda or cuda:N%s", arg,
                       strncmp(arg, "gpu", 3) == 0 ? ": a GPU is 'cuda'" : "");
        break;
    case KEY_KERNEL:
        settings->kernel = arg;
        break;
    case KEY_TIME:
        settings->time = true;
        if (arg && !parse_count(arg, 1, 1000000, &settings->repeats))
            argp_error(state, "--time=%s: a number from 1 to 1000000 is expected", arg);
        break;
    case KEY_QUIET:
        settings->quiet = true;
        break;
    case KEY_PROFILE:
        settings->profile = true;
        break;
    case KEY_SVG:
        settings->svg = arg;
        break;
    case KEY_NCU:
        settings->ncu = true;
        settings->counters = arg;
        break;
    case KEY_TRACE:
        settings->trace = arg;
        break;
    case KEY_SANITIZE:
        if (arg && strcmp(arg, "json")) argp_error(state, "--sanitize=%s: json is expected, or nothing", arg);
        settings->sanitize = arg ? TVM_SANITIZE_JSON : TVM_SANITIZE_TEXT;
        break;
    case KEY_REQUIRE_PROOF:
        settings->require_proof = true;
        break;
    case KEY_PERSISTENT:
        settings->persistent = true;
        break;
    case KEY_THREADS:
        if (!parse_count(arg, 1, 4096, &settings->context.threads))
            argp_error(state, "--threads %s: a number from 1 to 4096 is expected", arg);
        break;
    case KEY_MULTIPROCESSORS:
        if (!parse_count(arg, 1, 65535, &settings->context.multiprocessors))
            argp_error(state, "--multiprocessors %s: a number from 1 to 65535 is expected", arg);
        break;
    case KEY_TARGET:
        if (!parse_count(arg, 0, 9999, &settings->context.target))
            argp_error(state, "--target %s: a number from 0 to 9999 is expected", arg);
        break;
    case KEY_LIMITS: {
        const char *wrong = tvm_run_limits_parse(arg, &settings->limits);
        if (wrong) argp_error(state, "--limits: '%s' is not %s", wrong, tvm_run_limits_names);
        break;
    }
    case KEY_CHECK:
        settings->check = arg;
        break;
    case KEY_TOLERANCE:
        if (!parse_tolerance(arg, &settings->tolerance))
            argp_error(state, "--tolerance %s: a number from 0 is expected", arg);
        break;
    case 'v':
        settings->verbose = true;
        break;
    case KEY_CACHE_STATS:
        settings->cache = TVM_RUN_CACHE_STATS;
        break;
    case KEY_CACHE_CLEAR:
        settings->cache = TVM_RUN_CACHE_CLEAR;
        break;
    case KEY_ARGS:
        if (arg) add_word(settings, arg, state);
        break;
    case ARGP_KEY_ARG:
        add_word(settings, arg, state);
        break;
    case ARGP_KEY_END:
        if (settings->sanitize && settings->context.device == TVM_DEVICE_AUTO)
            settings->context.device = TVM_DEVICE_CPU;
        if (settings->svg && !settings->profile) argp_error(state, "--svg goes with --profile");
        if (settings->ncu && !settings->profile) argp_error(state, "--ncu goes with --profile");
        if (!settings->file && !settings->cache) argp_error(state, "a program is expected");
        if (settings->file && settings->cache)
            argp_error(state, "--cache-stats and --cache-clear take no file");
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* ---- the run ---- */

/* The reason of a call of tvm.h that failed, as a diagnostic. */
static tvm_status failed(tvm_context *context, tvm_status status, tvm_diags *diags) {
    return status ? tvm_diag_add(diags, status, NULL, NULL, "%s", tvm_message(context)) : TVM_OK;
}

static tvm_status name_a_kernel(tvm_program *code, tvm_diags *diags) {
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    if (!stream) return tvm_diag_no_memory(diags);
    for (size_t i = 0; i < tvm_kernel_count(code); i++) {
        char *signature = tvm_run_signature(tvm_kernel_at(code, i));
        fprintf(stream, "\n  %s", signature ? signature : tvm_kernel_name(tvm_kernel_at(code, i)));
        free(signature);
    }
    if (fclose(stream)) {
        free(text);
        return tvm_diag_no_memory(diags);
    }
    tvm_status status = tvm_diag_add(diags, TVM_NOT_FOUND, NULL, NULL,
                                     "the program has %zu kernels and entries, and --kernel names none:%s",
                                     tvm_kernel_count(code), text);
    free(text);
    return status;
}

static tvm_status choose_kernel(tvm_context *context, tvm_program *code, const char *name,
                                tvm_kernel **function, tvm_diags *diags) {
    if (name) return failed(context, tvm_get_kernel(code, name, function), diags);
    size_t count = tvm_kernel_count(code), entries = code->program->entry_count;
    if (entries ? entries != 1 : count != 1) return name_a_kernel(code, diags);
    *function = tvm_kernel_at(code, count - 1);
    return TVM_OK;
}

/* The median time, after the results have been written: repeated launches may change tensors again. */
static tvm_status print_time(const run_settings *settings, const tvm_run_binding *binding, tvm_diags *diags) {
    double microseconds;
    tvm_status status =
        failed(binding->context,
               tvm_time(binding->function, binding->values, binding->count, settings->repeats, &microseconds),
               diags);
    if (status) return status;
    if (settings->quiet)
        printf("%.3f\n", microseconds);
    else
        printf("%s: %.3f us (median, %s)\n", tvm_kernel_name(binding->variant), microseconds,
               tvm_device_name(binding->context));
    return TVM_OK;
}

static tvm_status print_counters(const run_settings *settings, const tvm_run_binding *binding,
                                 tvm_diags *diags) {
    if (tvm_device(binding->context) == TVM_DEVICE_CPU)
        return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, NULL,
                            "ncu counts on a GPU; there is only the interpreter");
    const tvm_source_options *source = &settings->source;
    size_t count = 0, given = source->define_count + source->include_dir_count;
    const char **words = calloc(settings->word_count + 2 * given + 1, sizeof *words);
    if (!words) return tvm_diag_no_memory(diags);
    for (size_t i = 0; i < given; i++) {
        bool defines = i < source->define_count;
        words[count++] = defines ? "-D" : "-I";
        words[count++] = defines ? source->defines[i] : source->include_dirs[i - source->define_count];
    }
    for (size_t i = 0; i < settings->word_count; i++) words[count++] = settings->words[i];
    const tvm_run_ncu_launch launch = {settings->file,
                                       tvm_kernel_name(binding->function),
                                       tvm_kernel_name(binding->variant),
                                       settings->context.ordinal,
                                       words,
                                       count};
    tvm_status status = tvm_run_ncu(&launch, settings->counters, stdout, diags);
    free(words);
    return status;
}

static tvm_status print_profile(const run_settings *settings, tvm_run_binding *binding, tvm_diags *diags) {
    tvm_run_profile profile;
    tvm_status status = tvm_run_profile_take(binding, &settings->args, &profile, diags);
    if (status) return status;
    if (settings->verbose && tvm_device(binding->context) != TVM_DEVICE_CPU)
        fprintf(stderr, "tvm-run: walls: %s\n", profile.walls_measured ? "measured now" : "of the cache");
    tvm_run_profile_print(&profile, stdout);
    if (settings->svg) status = tvm_run_profile_svg(&profile, settings->svg, diags);
    return !status && settings->ncu ? print_counters(settings, binding, diags) : status;
}

static void print_warning(const run_settings *settings, const tvm_context *context) {
    const char *warning = tvm_context_warning(context);
    if (warning && !settings->quiet) fprintf(stderr, "tvm-run: warning: %s\n", warning);
}

/* A launch that is not right in JSON has said why on standard output. */
static tvm_status launch_once(const run_settings *settings, const tvm_run_binding *binding,
                              tvm_diags *diags) {
    tvm_status status = tvm_launchv(binding->function, NULL, binding->values, binding->count);
    if (settings->sanitize != TVM_SANITIZE_JSON || (status && status != TVM_SANITIZER))
        return failed(binding->context, status, diags);
    puts(status ? tvm_message(binding->context) : "{\"reports\": [], \"lost\": 0}");
    return status;
}

static tvm_status print_costs(const tvm_run_binding *binding, tvm_diags *diags) {
    tvm_text costs = {0};
    tvm_status status =
        failed(binding->context, tvm_kernel_costs(binding->function, binding->values, binding->count, &costs),
               diags);
    for (const char *line = tvm_text_string(&costs); *line; line += strcspn(line, "\n") + 1)
        fprintf(stderr, "tvm-run: %.*s\n", (int)strcspn(line, "\n"), line);
    tvm_text_free(&costs);
    return status;
}

/* What is embedded in the file, and what of it, or in its place, is run. */
static void print_code(const tvm_program *code) {
    const tvm_ir_program *program = code->program;
    for (uint32_t i = 0; i < program->image_count; i++)
        fprintf(stderr, "tvm-run: embedded: %s for %s, %zu bytes\n", program->images[i].ptx ? "PTX" : "cubin",
                program->images[i].target, program->images[i].code_size);
    fprintf(stderr, "tvm-run: code: %s\n", tvm_code_origin(code));
}

/* Of a graph, which is NULL where a kernel is launched, the parameters are those of its head. */
typedef struct run_job {
    tvm_program *code;
    tvm_graph_source *source; /* NULL: no graph, or it has it */
    tvm_run_graph graph;
} run_job;

/* What is translated and checked before tensors are on the device. */
static tvm_status prepare(const run_settings *settings, tvm_run_binding *binding, tvm_diags *diags) {
    tvm_status status = failed(binding->context, tvm_prepare(binding->function), diags);
    print_warning(settings, binding->context);
    if (!status && settings->verbose) print_code(binding->function->code);
    return !status && settings->verbose ? print_costs(binding, diags) : status;
}

static tvm_status launch(const run_settings *settings, tvm_run_binding *binding, run_job *job,
                         tvm_run_check *check, tvm_diags *diags) {
    tvm_graph_source *source = job->source;
    tvm_status status = source ? TVM_OK : prepare(settings, binding, diags);
    if (!status) status = tvm_run_upload(binding, diags);
    if (!status && settings->check) status = tvm_run_check_copy(check, binding, diags);
    if (!status && source) {
        job->source = NULL;
        status = tvm_run_graph_make(&job->graph, source, binding, diags);
        print_warning(settings, binding->context);
    }
    if (!status)
        status = source ? tvm_run_graph_launch(&job->graph, binding, diags)
                        : launch_once(settings, binding, diags);
    if (!status) status = failed(binding->context, tvm_synchronize(binding->context, NULL), diags);
    if (!status) status = tvm_run_download(binding, diags);
    if (!status && settings->check)
        status = tvm_run_check_compare(check, binding, settings->tolerance, settings->quiet ? NULL : stdout,
                                       diags);
    if (!status && settings->time) status = print_time(settings, binding, diags);
    if (!status && settings->profile) status = print_profile(settings, binding, diags);
    return status;
}

/* Of an entry, of all its variants: which one runs is the launch's choice. */
static tvm_status require_proof(tvm_context *context, tvm_kernel *function, tvm_diags *diags) {
    tvm_kernel_proof proof;
    char *report = NULL;
    tvm_status status = failed(context, tvm_check_kernel(function, &proof, &report), diags);
    if (!status && (proof.races != TVM_VERDICT_PROVED || proof.deadlocks != TVM_VERDICT_PROVED))
        status = tvm_diag_add(diags, TVM_INVALID, NULL, "tvm-as --prove=certificate writes certificates",
                              "no certificate in the file confirms that %s has no races and no deadlock:\n%s",
                              tvm_kernel_name(function), report ? report : "");
    free(report);
    return status;
}

static tvm_status choose(const run_settings *settings, tvm_context *context, const run_job *job,
                         tvm_kernel **function, tvm_diags *diags) {
    if (job->source) {
        *function = tvm_graph_source_head(job->source);
        return TVM_OK;
    }
    tvm_status status = choose_kernel(context, job->code, settings->kernel, function, diags);
    return !status && settings->require_proof ? require_proof(context, *function, diags) : status;
}

static tvm_status run_job_on(const run_settings *settings, tvm_context *context, run_job *job,
                             tvm_diags *diags) {
    tvm_kernel *function = NULL;
    tvm_status status = choose(settings, context, job, &function, diags);
    if (status) return status;
    tvm_run_binding *binding = calloc(1, sizeof *binding);
    if (!binding) return tvm_diag_no_memory(diags);
    tvm_run_check check = {0};
    status = tvm_run_bind(context, function, &settings->args, binding, diags);
    if (!status && !settings->quiet && binding->variant != function)
        fprintf(stderr, "tvm-run: of entry '%s' kernel '%s' runs\n", tvm_kernel_name(function),
                tvm_kernel_name(binding->variant));
    if (!status && settings->check) status = tvm_run_check_open(settings->check, &check, diags);
    if (!status) status = launch(settings, binding, job, &check, diags);
    tvm_run_graph_free(&job->graph);
    tvm_run_check_close(&check);
    tvm_run_unbind(binding);
    free(binding);
    return status;
}

static void print_device(const tvm_context *context) {
    const char *note = tvm_context_note(context);
    fprintf(stderr, "tvm-run: running on %s%s%s%s\n", tvm_device_name(context), note ? " (no GPU: " : "",
            note ? note : "", note ? ")" : "");
}

/* The files that the arguments name, and those that the run writes: before anything is run. */
static tvm_status check_files(run_settings *settings, tvm_diags *diags) {
    tvm_status status = TVM_OK;
    for (size_t i = 0; i < settings->args.count; i++)
        if (settings->args.items[i].source == TVM_RUN_FILE)
            tvm_tool_reads_tensor(&settings->files, settings->args.items[i].text);
    if (settings->check) tvm_tool_reads_tensor(&settings->files, settings->check);
    /* What is printed is an output, too: it does not go between the bytes of a tensor. */
    if (settings->time || settings->profile || settings->check || settings->sanitize == TVM_SANITIZE_JSON)
        status = tvm_tool_writes(&settings->files, "-", TVM_FILE_REPORT, diags);
    bool piped = false; /* several tensors go to standard output one after the other */
    for (size_t i = 0; !status && i < settings->args.count; i++) {
        const char *out = settings->args.items[i].out;
        if (!out || (piped && strcmp(out, "-") == 0)) continue;
        piped = piped || strcmp(out, "-") == 0;
        status = tvm_tool_writes(&settings->files, out, TVM_FILE_NPY, diags);
    }
    if (!status && settings->svg)
        status = tvm_tool_writes(&settings->files, settings->svg, TVM_FILE_SVG, diags);
    if (!status && settings->trace)
        status = tvm_tool_writes(&settings->files, settings->trace, TVM_FILE_JSON, diags);
    return status;
}

/* What a graph does not go with. */
static tvm_status check_options(const run_settings *settings, bool is_graph, tvm_diags *diags) {
    const char *option = settings->kernel                          ? "--kernel"
                         : settings->time                          ? "--time"
                         : settings->profile                       ? "--profile"
                         : settings->require_proof                 ? "--require-proof"
                         : settings->sanitize == TVM_SANITIZE_JSON ? "--sanitize=json"
                                                                   : NULL;
    const tvm_place place = {.file = settings->file};
    if (!is_graph && settings->persistent)
        return tvm_diag_add(diags, TVM_USAGE, &place, NULL, "--persistent is for a graph, and there is none");
    if (!is_graph || !option) return TVM_OK;
    return tvm_diag_add(diags, TVM_USAGE, &place, settings->time ? "--trace shows how long it takes" : NULL,
                        "the file has a graph, with which %s does not go", option);
}

static tvm_status load(run_settings *settings, tvm_context *context, run_job *job, tvm_diags *diags) {
    tvm_ir_program *program;
    tvm_graph_text *text = NULL;
    tvm_status status = tvm_source_read_file(settings->file, &settings->source, &settings->files, &text, NULL,
                                             &program, diags);
    if (status) return status;
    status = check_options(settings, text != NULL, diags);
    if (!status) status = check_files(settings, diags);
    if (!status && text) return tvm_graph_source_load(context, text, program, &job->source, diags);
    if (!status) return tvm_context_load(context, program, &job->code, diags);
    tvm_graph_text_free(text);
    tvm_ir_program_free(program);
    return status;
}

static tvm_status run(run_settings *settings, tvm_diags *diags) {
    tvm_context *context = NULL;
    run_job job = {.graph = {.persistent = settings->persistent, .verbose = settings->verbose}};
    tvm_status status = tvm_context_create(&settings->context, &context);
    if (!status) status = tvm_set_limits(context, &settings->limits);
    if (status)
        failed(context, status, diags);
    else
        status = load(settings, context, &job, diags);
    if (!status && settings->sanitize)
        status = failed(context, tvm_set_sanitizer(context, settings->sanitize), diags);
    if (!status && !settings->quiet) print_device(context);
    bool tracing = !status && settings->trace;
    if (tracing) status = failed(context, tvm_trace_start(context, settings->trace), diags);
    tracing = tracing && !status;
    if (!status) status = run_job_on(settings, context, &job, diags);
    if (tracing) {
        tvm_status stopped = failed(context, tvm_trace_stop(context), diags);
        if (!status) status = stopped;
    }
    tvm_graph_source_free(job.source);
    tvm_program_free(job.code);
    tvm_context_free(context);
    return status;
}

int main(int argc, char **argv) {
    static const struct argp_child children[] = {{.argp = &tvm_source_argp}, {0}};
    static const struct argp parser = {
        options, parse_option, "FILE [--args NAME=VALUE ...]", description, children, NULL, NULL};
    run_settings settings = {.tolerance = -1, .words = calloc((size_t)argc + 1, sizeof *settings.words)};
    tvm_diags *diags = &settings.diags;
    if (!settings.words) return EXIT_FAILURE;
    tvm_status status =
        tvm_tool_parse(&parser, "tvm-run (Tilus VM) " PACKAGE_VERSION, argc, argv, &settings, diags);
    if (!status)
        status = settings.cache ? tvm_run_cache_do(settings.cache, stdout, diags) : run(&settings, diags);
    tvm_run_args_free(&settings.args);
    tvm_tool_files_free(&settings.files);
    tvm_source_options_free(&settings.source);
    free(settings.words);
    return tvm_tool_end("tvm-run", status, diags);
}
