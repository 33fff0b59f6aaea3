/* The language server: tvm-as --lsp. */
#ifndef TVM_ASSEMBLER_LSP_H
#define TVM_ASSEMBLER_LSP_H

#include "assembler.h"
#include "warnings.h"

/* Serves one client on standard input and output (Language Server Protocol 3.17) until it says exit, or its
 * end of the input closes. Documents are assembled with options' include_dirs; warnings: those of
 * warnings.h. The exit status: 0 when the client said shutdown and exit; else 1, also where its messages
 * cannot be told apart any more, which is said on standard error. */
int tvm_lsp_run(const tvm_assembler_options *options, const tvm_warnings *warnings);

#endif
