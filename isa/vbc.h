/* The bytecode container, vbc(5): magic, version, sections with checksums; little-endian. */
#ifndef TVM_ISA_VBC_H
#define TVM_ISA_VBC_H

#include "program.h"

enum { TVM_VBC_VERSION = 1 };

/* Serialises a verified program. Strings, layouts, variables and expressions are numbered in the order of
 * their first use, and those that nothing uses are left out, so that how a program was built does not show.
 * *bytes is malloc'ed, the caller frees it. The same program gives the same bytes. lines: write the line
 * table. */
tvm_status tvm_vbc_write(const tvm_ir_program *program, bool lines, uint8_t **bytes, size_t *size,
                         tvm_diags *diags);

/* Reads and verifies a program from any bytes. `name` (may be NULL) is the file named in diagnostics. */
tvm_status tvm_vbc_read(const uint8_t *bytes, size_t size, const char *name, tvm_ir_program **program,
                        tvm_diags *diags);

/* The same from a file ("-" is standard input, at most 1 GiB), and to one: to a temporary beside it that is
 * renamed, so that there is never half a file ("-" is standard output). */
tvm_status tvm_vbc_read_file(const char *path, tvm_ir_program **program, tvm_diags *diags);
tvm_status tvm_vbc_write_file(const tvm_ir_program *program, const char *path, bool lines, tvm_diags *diags);

/* A hash of what the program's kernels mean (its container without entries and line table): key of the cubin
 * cache, so that another table of variants compiles nothing again. */
tvm_status tvm_vbc_hash(const tvm_ir_program *program, uint64_t hash[2], tvm_diags *diags);

#endif
