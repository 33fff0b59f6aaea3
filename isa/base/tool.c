#include "tool.h"
#include "output.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"

/* ---- signals ---- */

/* The signal's own action is back when this runs (SA_RESETHAND), and takes place when it returns, before that
 * of any other, as all of them wait for that. */
static void end_process(int signal) {
    tvm_output_remove_temporaries();
    raise(signal);
}

void tvm_tool_signals(void) {
    static const int ending[] = {SIGHUP, SIGINT, SIGTERM};
    struct sigaction action = {.sa_handler = end_process, .sa_flags = (int)SA_RESETHAND};
    sigfillset(&action.sa_mask);
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++) {
        struct sigaction before;
        if (!sigaction(ending[i], NULL, &before) && before.sa_handler == SIG_DFL)
            sigaction(ending[i], &action, NULL);
    }
    signal(SIGXFSZ, SIG_IGN);
}

/* ---- the command line ---- */

static error_t parse_help(int key, char *argument, struct argp_state *state) {
    (void)argument;
    if (key != 'h') return ARGP_ERR_UNKNOWN;
    argp_state_help(state, state->out_stream, ARGP_HELP_STD_HELP);
    return 0;
}

/* argp ends the process itself after --help, --usage and --version, whose text may not have been written. */
static void end_help(int status, void *name) {
    if (status || !(fflush(stdout) || ferror(stdout))) return;
    fprintf(stderr, "%s: error: standard output cannot be written: %s\n", (const char *)name,
            strerror(errno));
    _exit(EXIT_FAILURE);
}

tvm_status tvm_tool_parse(const struct argp *parser, const char *version, int argc, char **argv, void *input,
                          tvm_diags *diags) {
    static const struct argp_option help_options[] = {{NULL, 'h', NULL, 0, "the same as --help", -1}, {0}};
    static const struct argp help = {.options = help_options, .parser = parse_help};
    enum { CHILDREN = 4 };
    struct argp_child children[CHILDREN + 2] = {{0}};
    struct argp whole = *parser;
    unsigned count = 0;
    for (; parser->children && parser->children[count].argp && count < CHILDREN; count++)
        children[count] = parser->children[count];
    children[count].argp = &help;
    whole.children = children;
    argp_program_version = version;
    if (PACKAGE_BUGREPORT[0]) argp_program_bug_address = PACKAGE_BUGREPORT;
    argp_err_exit_status = TVM_EXIT_USAGE;
    tvm_tool_signals();
    if (on_exit(end_help, program_invocation_short_name)) return tvm_diag_no_memory(diags);
    return argp_parse(&whole, argc, argv, 0, NULL, input) ? tvm_diag_no_memory(diags) : TVM_OK;
}

/* ---- the end ---- */

bool tvm_tool_coloured(int descriptor) {
    const char *no_color = secure_getenv("NO_COLOR");
    return isatty(descriptor) && !(no_color && no_color[0]);
}

int tvm_tool_end(const char *name, tvm_status status, tvm_diags *diags) {
    if ((fflush(stdout) || ferror(stdout)) && !status)
        status =
            tvm_diag_add(diags, TVM_IO, NULL, NULL, "standard output cannot be written: %s", strerror(errno));
    tvm_diags_print(diags, stderr, name, tvm_tool_coloured(STDERR_FILENO));
    tvm_diags_free(diags);
    return status ? EXIT_FAILURE : EXIT_SUCCESS;
}
