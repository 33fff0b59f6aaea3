/* What the tools' main functions begin with. */
#ifndef TVM_ISA_TOOL_H
#define TVM_ISA_TOOL_H

/* How signals meet the process, which is a tool's own and not a host of the library. One that ends it
 * (SIGHUP, SIGINT, SIGTERM) removes the outputs' temporaries first, and ends it as that signal does; it stays
 * ignored where it was, as under nohup(1). A file-size limit is an error of what is written, standard output
 * included, where SIGXFSZ would have ended the process. */
void tvm_tool_signals(void);

#endif
