/* tvm-tune: finds the best point of a program's space by measuring. See tvm-tune(1). */
#include "config.h"

#include "tool.h"
#include "tune_team.h"

#include <argp.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>


enum {
    KEY_KERNEL = 256,
    KEY_SHAPES,
    KEY_DEVICE,
    KEY_TARGET,
    KEY_THREADS,
    KEY_REFERENCE,
    KEY_TOLERANCE,
    KEY_COST,
    KEY_GAIN,
    KEY_TIME,
    KEY_LIMIT,
    KEY_REPEATS,
    KEY_SPILLS,
    KEY_JOBS,
    KEY_LOG,
    KEY_RESUME,
    KEY_FROM,
    KEY_CASES,
    KEY_ALLOW_INTERPRETER,
    KEY_SVG,
    KEY_QUIET,
    KEY_ARGS,
    DEFAULT_REPEATS = 200
};

static const struct argp_option options[] = {
    {"kernel", KEY_KERNEL, "NAME", 0, "the kernel or entry to tune; may be left out when the program has one",
     0},
    {"shapes", KEY_SHAPES, "FILE", 0, "the shapes to measure, a line each, and their classes", 0},
    {"device", KEY_DEVICE, "DEVICE", 0, "auto (the default), cpu, cuda or cuda:N", 0},
    {"target", KEY_TARGET, "TARGET", 0,
     "drop what the report for TARGET, such as sm_90a, rules out (default: that of the GPU)", 0},
    {"threads", KEY_THREADS, "N", 0, "threads of the interpreter (default: one a core)", 0},
    {"reference", KEY_REFERENCE, "KERNEL", 0,
     "compare the results with those of this kernel of the program, on the device (default: with the interpreter's "
     "of the first variant)",
     0},
    {"tolerance", KEY_TOLERANCE, "T", 0,
     "the error |x - r| may be T * max(1, |r|), where r is the reference's (default: two units in the last place of 1 "
     "for floats, else 0)",
     0},
    {"cost", KEY_COST, "COST", 0,
     "what is made least: time (the default), or, counted by the interpreter, instructions or bytes", 0},
    {"gain", KEY_GAIN, "PERCENT", 0, "that a variant must be better than the default (default: 2)", 0},
    {"time", KEY_TIME, "SECONDS", 0, "begin no further measurement after this long", 0},
    {"limit", KEY_LIMIT, "SECONDS", 0, "give a variant up that takes longer (default: 120)", 0},
    {"repeats", KEY_REPEATS, "N", 0, "launches of a measurement (default: 200)", 0},
    {"spills", KEY_SPILLS, "BYTES", 0, "that a thread may spill (default: 0)", 0},
    {"jobs", KEY_JOBS, "N", 0, "build with N threads (default: one a core)", 0},
    {"log", KEY_LOG, "FILE.json", 0, "write what was measured, after each variant", 0},
    {"resume", KEY_RESUME, "FILE.json", 0, "do not measure again what stands in this log", 0},
    {"from", KEY_FROM, "FILE.json", 0, "measure nothing: choose from what stands in this log", 0},
    {"cases", KEY_CASES, "FILE", 0,
     "write the cases that are better than the entry's own, for .include in it", 0},
    {"output", 'o', "FILE", 0, "write the chosen variants and the entry: text, or bytecode to a FILE.vbc", 0},
    {"allow-interpreter", KEY_ALLOW_INTERPRETER, NULL, 0,
     "write -o and --cases also where they are chosen by times of the interpreter", 0},
    {"svg", KEY_SVG, "FILE.svg", 0, "draw the cost of every variant", 0},
    {"quiet", KEY_QUIET, NULL, 0, "no progress", 0},
    {"args", KEY_ARGS, "NAME=VALUE", OPTION_ARG_OPTIONAL, "the kernel's arguments follow, as of tvm-run", 0},
    {0}};

static const char description[] =
    "Measures a kernel for every point of the space that its program names with .tune, and chooses the best.\v"
    "The shapes file has a line a shape, words NAME=VALUE, which go before those of --args. 'if CONDITION' begins "
    "a class of shapes, for which one variant is chosen, and 'else' the last one; 'check' before a shape means that it "
    "is checked and not measured.\n"
    "\n"
    "  tvm-tune softmax.vasm --shapes rows --args x=rand y=zeros -o softmax_tuned.vasm\n"
    "\n"
    "Exit status: 0 success, 1 an error, or no variant that is right, 2 wrong usage.";

static bool parse_number(const char *text, double least, double most, double *number) {
    char *end;
    *number = strtod(text, &end);
    return end != text && !*end && isfinite(*number) && *number >= least && *number <= most;
}

static void number(const char *name, const char *text, double least, double most, double *value,
                   struct argp_state *state) {
    if (!parse_number(text, least, most, value))
        argp_error(state, "--%s %s: a number from %g to %g is expected", name, text, least, most);
}

static unsigned count(const char *name, const char *text, unsigned least, unsigned most,
                      struct argp_state *state) {
    double value = 0;
    number(name, text, least, most, &value, state);
    if (value != floor(value)) argp_error(state, "--%s %s: a whole number is expected", name, text);
    return (unsigned)value;
}

static void parse_device(const char *text, tvm_context_options *device, struct argp_state *state) {
    double ordinal = 0;
    if (!strcmp(text, "auto"))
        device->device = TVM_DEVICE_AUTO;
    else if (!strcmp(text, "cpu"))
        device->device = TVM_DEVICE_CPU;
    else if (!strcmp(text, "cuda") ||
             (!strncmp(text, "cuda:", 5) && parse_number(text + 5, 0, 1023, &ordinal)))
        device->device = TVM_DEVICE_CUDA;
    else
        argp_error(state, "'%s' is not auto, cpu, cuda or cuda:N", text);
    device->ordinal = (int)ordinal;
}

static tune_cost parse_cost(const char *text, struct argp_state *state) {
    for (unsigned c = 0; c < TUNE_COSTS; c++)
        if (!strcmp(text, tune_cost_names[c])) return (tune_cost)c;
    argp_error(state, "--cost %s: time, instructions or bytes is expected", text);
    return TUNE_TIME;
}

static error_t append(const char ***list, size_t *size, const char *item) {
    const char **more = realloc(*list, (*size + 1) * sizeof *more);
    if (!more) return ENOMEM;
    *list = more;
    more[(*size)++] = item;
    return 0;
}

static error_t add_word(tune_options *o, const char *word, struct argp_state *state) {
    if (tvm_run_is_arg(word)) return append(&o->words, &o->word_count, word);
    if (o->input) argp_error(state, "'%s' is not NAME=VALUE, and the file is '%s'", word, o->input);
    o->input = word;
    return 0;
}

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    tune_options *o = state->input;
    double value = 0;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->source;
        if (o->messages) state->out_stream = state->err_stream = o->messages;
        return 0;
    case KEY_KERNEL:
        o->kernel = arg;
        return 0;
    case KEY_SHAPES:
        o->shapes = arg;
        return 0;
    case KEY_DEVICE:
        parse_device(arg, &o->device, state);
        return 0;
    case KEY_TARGET:
        o->target = arg;
        return 0;
    case KEY_THREADS:
        o->device.threads = count("threads", arg, 1, 4096, state);
        return 0;
    case KEY_REFERENCE:
        o->reference = arg;
        return 0;
    case KEY_TOLERANCE:
        number("tolerance", arg, 0, 1e300, &o->tolerance, state);
        return 0;
    case KEY_COST:
        o->cost = parse_cost(arg, state);
        return 0;
    case KEY_GAIN:
        number("gain", arg, 0, 100, &o->gain, state);
        return 0;
    case KEY_TIME:
        number("time", arg, 0, 1e9, &o->seconds, state);
        return 0;
    case KEY_LIMIT:
        number("limit", arg, 0.001, 1e6, &o->limit, state);
        return 0;
    case KEY_REPEATS:
        o->repeats = count("repeats", arg, 1, 1000000, state);
        return 0;
    case KEY_SPILLS:
        number("spills", arg, 0, 1e9, &value, state);
        o->spills = (int64_t)value;
        return 0;
    case KEY_JOBS:
        o->jobs = count("jobs", arg, 1, 1024, state);
        return 0;
    case KEY_LOG:
        o->log = arg;
        return 0;
    case KEY_RESUME:
        o->resume = arg;
        return 0;
    case KEY_FROM:
        o->from = arg;
        return 0;
    case KEY_CASES:
        o->cases = arg;
        return 0;
    case KEY_ALLOW_INTERPRETER:
        o->allow_interpreter = true;
        return 0;
    case KEY_SVG:
        o->svg = arg;
        return 0;
    case 'o':
        o->output = arg;
        return 0;
    case KEY_QUIET:
        o->quiet = true;
        return 0;
    case KEY_ARGS:
        return arg ? add_word(o, arg, state) : 0;
    case ARGP_KEY_ARG:
        return add_word(o, arg, state);
    case ARGP_KEY_END:
        if (!o->input) argp_error(state, "a program's text is expected");
        if (o->from && o->resume)
            argp_error(state, "--from and --resume: one log, to choose from or to go on from");
        if (o->cost != TUNE_TIME && o->device.device == TVM_DEVICE_CUDA)
            argp_error(state, "--cost %s is counted by the interpreter: --device=cpu",
                       tune_cost_names[o->cost]);
        if (o->cost != TUNE_TIME) o->device.device = TVM_DEVICE_CPU;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void reads_tensors(tvm_tool_files *files, const tvm_run_args *args) {
    for (size_t a = 0; a < args->count; a++)
        if (args->items[a].source == TVM_RUN_FILE) tvm_tool_reads_tensor(files, args->items[a].text);
}

/* The log of --resume may go on in its file, and the program may include the file of --cases: what is read
 * there is named after it. */
static tvm_status check_files(tune *t, tvm_diags *diags) {
    const tune_options *o = &t->options;
    tvm_tool_files *files = &t->files;
    tvm_status status = TVM_OK;
    tvm_tool_reads(files, o->input);
    if (o->shapes) tvm_tool_reads(files, o->shapes);
    for (unsigned s = 0; s < t->shape_count; s++) reads_tensors(files, &t->shapes[s].args);
    if (o->log) status = tvm_tool_writes(files, o->log, TVM_FILE_JSON, diags);
    if (!status && o->cases) status = tvm_tool_writes(files, o->cases, TVM_FILE_PROGRAM, diags);
    if (o->from) tvm_tool_reads(files, o->from);
    if (o->resume) tvm_tool_reads(files, o->resume);
    return status;
}

/* After the program has been read: what it includes is an input, too. */
static tvm_status check_output(tune *t, tvm_diags *diags) {
    const tune_options *o = &t->options;
    tvm_status status = TVM_OK;
    if (o->output)
        status =
            tvm_tool_writes(&t->files, o->output,
                            tune_writes_bytecode(o->output) ? TVM_FILE_BYTECODE : TVM_FILE_PROGRAM, diags);
    if (!status && o->svg) status = tvm_tool_writes(&t->files, o->svg, TVM_FILE_SVG, diags);
    return status;
}

/* The table, which leaves standard output to a file that is written there. */
static void print_table(const tune *t) {
    const tune_options *o = &t->options;
    const char *const outputs[] = {o->log, o->svg, o->output, o->cases};
    FILE *out = stdout;
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        if (outputs[i] && strcmp(outputs[i], "-") == 0) out = stderr;
    tune_print(t, out);
}

static tvm_status run(tune *t, tvm_diags *diags) {
    tvm_status status = tune_shapes_read(t, diags);
    if (!status) status = check_files(t, diags);
    if (!status) status = tune_space_read(t, diags);
    if (!status) status = check_output(t, diags);
    if (!status) status = tune_folder_make(t, diags);
    if (t->ranks.rank > 0) return tune_team_serve(t, status, diags);
    const char *log = t->options.from ? t->options.from : t->options.resume;
    if (!status && log) status = tune_log_read(t, log, diags);
    if (status || t->options.from) tune_team_send_away(t);
    if (!status) status = t->options.from ? tune_space_build(t, NULL, NULL, diags) : tune_measure(t, diags);
    if (!status) status = tune_check_device(t, diags);
    if (status) return status;
    tune_choose(t);
    print_table(t);
    if (t->options.log) status = tune_log_write(t, diags);
    if (!status && t->options.svg) status = tune_svg_write(t, diags);
    if (!status && t->options.output) status = tune_write(t, diags);
    if (!status && t->options.cases) status = tune_cases_write(t, diags);
    bool any = false;
    for (unsigned c = 0; c < t->class_count; c++) any = any || t->chosen[c] != UINT32_MAX;
    if (!status && !any) status = tvm_diag_add(diags, TVM_INVALID, NULL, NULL, "no variant is right");
    return status;
}

int main(int argc, char **argv) {
    static const struct argp_child children[] = {{.argp = &tvm_source_argp}, {0}};
    static const struct argp parser = {
        options, parse_option, "FILE.vasm [--args NAME=VALUE ...]", description, children, NULL, NULL};
    tune *t = calloc(1, sizeof *t);
    tvm_diags diags = {0};
    if (!t) return EXIT_FAILURE;
    t->options = (tune_options){.tolerance = -1, .gain = 2, .limit = 120, .repeats = DEFAULT_REPEATS};
    t->begun = tune_now();
    tvm_tool_signals(); /* before MPI has its own */
    signal(SIGPIPE, SIG_IGN);
    tvm_status status = tune_ranks_begin(&t->ranks, &diags);
    /* What all ranks would say, rank 0 says. */
    if (t->ranks.rank > 0) t->options.messages = fopen("/dev/null", "w");
    if (!status)
        status =
            tvm_tool_parse(&parser, "tvm-tune (Tilus VM) " PACKAGE_VERSION, argc, argv, &t->options, &diags);
    if (t->ranks.rank > 0) t->options.quiet = true;
    if (!status) status = run(t, &diags);
    tune_folder_remove(t);
    for (uint32_t v = 0; t->variants && v < t->count; v++) free(t->variants[v].costs);
    free(t->variants);
    tvm_tune_space_free(&t->space);
    tune_shapes_free(t);
    free(t->text);
    if (t->options.messages) fclose(t->options.messages);
    free(t->options.words);
    tvm_source_options_free(&t->options.source);
    tvm_tool_files_free(&t->files);
    free(t);
    return tvm_tool_end("tvm-tune", status, &diags);
}
