/* The bytecode container, vbc(5): magic, version, sections with checksums; little-endian. */
#ifndef TVM_ISA_VBC_H
#define TVM_ISA_VBC_H

#include "program.h"

/* Of the container. It grows only where a reader of before could not find its way in the file at all: what
 * programs can say grows with the language's version, which the header has. All versions from TVM_VBC_OLDEST
 * on are read. */
enum { TVM_VBC_VERSION = 3, TVM_VBC_OLDEST = 2 };
enum { TVM_VBC_FILE_MAX = 1 << 30 }; /* bytes */
/* The parts of a container that may be left out. */
enum { TVM_VBC_LINES = 1, TVM_VBC_IMAGES = 2, TVM_VBC_CERTIFICATES = 4 };

/* Serialises a verified program. Strings, layouts, variables and expressions are numbered in the order of
 * their first use, and those that nothing uses are left out, so that how a program was built does not show.
 * *bytes is malloc'ed, the caller frees it. The same program gives the same bytes. parts: which of the above
 * to write; images and certificates are written when there are any. */
tvm_status tvm_vbc_write(const tvm_ir_program *program, unsigned parts, uint8_t **bytes, size_t *size,
                         tvm_diags *diags);

/* Reads and verifies a program from any bytes. `name` (may be NULL) is the file named in diagnostics. */
tvm_status tvm_vbc_read(const uint8_t *bytes, size_t size, const char *name, tvm_ir_program **program,
                        tvm_diags *diags);

/* How long a container is, as far as its first bytes say: a tvm_file_extent (fileio.h). And do they begin
 * one? */
uint64_t tvm_vbc_extent(const uint8_t *bytes, size_t size);
bool tvm_vbc_begins(const uint8_t *bytes, size_t size);

/* The same from a file ("-" is standard input, at most TVM_VBC_FILE_MAX), and to one: to a temporary beside
 * it that is renamed, so that there is never half a file ("-" is standard output). */
tvm_status tvm_vbc_read_file(const char *path, tvm_ir_program **program, tvm_diags *diags);
tvm_status tvm_vbc_write_file(const tvm_ir_program *program, const char *path, unsigned parts,
                              tvm_diags *diags);

/* A 64-bit hash of the program's meaning (its container without line table, images and certificates): key of
 * the cubin cache. */
tvm_status tvm_vbc_hash(const tvm_ir_program *program, uint64_t hash[2], tvm_diags *diags);

#endif
