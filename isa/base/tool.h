/* What the tools' main functions have in common: the command line, signals, messages, the exit status. */
#ifndef TVM_TOOL_H
#define TVM_TOOL_H

#include <argp.h>

#include "diag.h"

/* The exit status of wrong usage; EXIT_FAILURE is that of an error. */
enum { TVM_EXIT_USAGE = 2 };

/* How signals meet the process, which is a tool's own and not a host of the library. One that ends it
 * (SIGHUP, SIGINT, SIGTERM) removes the outputs' temporaries first, and ends it as that signal does; it stays
 * ignored where it was, as under nohup(1). A file-size limit is an error of what is written, standard output
 * included, where SIGXFSZ would have ended the process. */
void tvm_tool_signals(void);

/* Reads the command line, signals prepared. `version` is the whole line that --version prints: a literal. To
 * the parser's options it adds -h, by which --help goes as well. Wrong usage ends the process; TVM_NO_MEMORY.
 */
tvm_status tvm_tool_parse(const struct argp *parser, const char *version, int argc, char **argv, void *input,
                          tvm_diags *diags);

/* Are colours for this stream: is it a terminal, and has NO_COLOR not switched them off? */
bool tvm_tool_coloured(int descriptor);

/* Says what went wrong, on standard error, and releases it; what is still to be written to standard output
 * is, or that is said. The process's exit status. */
int tvm_tool_end(const char *name, tvm_status status, tvm_diags *diags);

#endif
