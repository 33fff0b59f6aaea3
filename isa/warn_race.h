/* Warnings about races that need no run. */
#ifndef TVM_ISA_WARN_RACE_H
#define TVM_ISA_WARN_RACE_H

#include "program.h"

/* Accesses of one shared tensor, by different threads of a team, with nothing between them on some path that
 * orders them: load-shared and store-shared of a place known to be the same, and of the tile of a copy-async
 * that is not waited for. The program has been verified. Adds a warning (a diagnostic of status TVM_OK) for
 * each pair; returns TVM_OK, or TVM_NO_MEMORY. What it does not understand it does not warn of: masks,
 * indices that may differ, roles among each other. */
tvm_status tvm_warn_races(const tvm_ir_program *program, tvm_diags *diags);

#endif
