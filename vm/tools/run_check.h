/* tvm-run --check: a kernel's results against those of a C function with the same arguments. */
#ifndef TVM_VM_RUN_CHECK_H
#define TVM_VM_RUN_CHECK_H

#include "run_bind.h"

typedef struct tvm_run_check {
    char *library; /* path, as dlopen takes it */
    const char *symbol;
    void *handle;
    void (*function)(void);
    void *data[TVM_MAX_PARAMS]; /* the reference's copies of the tensors */
    size_t bytes[TVM_MAX_PARAMS];
} tvm_run_check;

/* reference: "LIBRARY:FUNCTION". Zero-initialise the check; release with tvm_run_check_close in any case.
 * TVM_USAGE, TVM_NOT_FOUND. */
tvm_status tvm_run_check_open(const char *reference, tvm_run_check *check, tvm_diags *diags);
/* Takes copies of the tensors, which are on the device. */
tvm_status tvm_run_check_copy(tvm_run_check *check, const tvm_run_binding *binding, tvm_diags *diags);
/* After the kernel has run: calls the function on the copies, and compares every tensor. An element x is
 * right when |x - r| <= tolerance * max(1, |r|), r the reference's; a negative tolerance means two units in
 * the last place of 1 for floats and equality for other types. Each tensor that differs gets a line in
 * `report` (NULL: none). TVM_INVALID when an element is not right. */
tvm_status tvm_run_check_compare(tvm_run_check *check, const tvm_run_binding *binding, double tolerance,
                                 FILE *report, tvm_diags *diags);
/* The same with reference tensors that are in check->data already; those that are NULL are skipped. Messages
 * call the reference `symbol`. No function is called. */
tvm_status tvm_run_check_against(const tvm_run_check *check, const tvm_run_binding *binding, double tolerance,
                                 FILE *report, tvm_diags *diags);
void tvm_run_check_close(tvm_run_check *check);

#endif
