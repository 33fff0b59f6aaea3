/* What the text of a graph says (vasm(5), .graph): tensors, the launches that pass them on, and the programs
 * whose kernels are launched, all before sizes and addresses are known. The assembler makes it; the runtime
 * makes a tvm_graph of it, once it has the scalars.
 *
 * The tensors and scalars are those of a program with one kernel, the head, which nobody launches: its
 * parameters are the graph's, its alloc-global are the temporaries, its view-global are parts of tensors, and
 * its expressions are the scalars that launches take. So extents, strides and assumptions mean what they mean
 * in a kernel, and the verifier has seen them. */
#ifndef TVM_ASSEMBLER_GRAPH_TEXT_H
#define TVM_ASSEMBLER_GRAPH_TEXT_H

#include "program.h"

enum {
    TVM_GRAPH_TEXT_PROGRAMS = 64,   /* of .program */
    TVM_GRAPH_TEXT_LAUNCHES = 4096, /* as many as a tvm_graph has */
    TVM_GRAPH_TEXT_AFTER = 64       /* launches that one names */
};

/* What a graph does with a tensor of the caller. */
typedef enum tvm_graph_text_role {
    TVM_GRAPH_TEXT_INPUT,
    TVM_GRAPH_TEXT_OUTPUT,
    TVM_GRAPH_TEXT_STATE
} tvm_graph_text_role;

/* Of a launch, for one parameter of the kernel. */
typedef struct tvm_graph_text_argument {
    uint32_t slot; /* tensor of the head; TVM_NONE: a scalar, */
    uint32_t expr; /* an expression of the head in the parameter's type */
} tvm_graph_text_argument;

typedef struct tvm_graph_text_launch {
    char *name;
    char *file; /* where it stands */
    uint32_t line;
    uint32_t program;  /* 0: the text's own kernels; else one more than the index in `programs` */
    uint32_t function; /* of that program: kernels are counted first, then entries */
    uint32_t argument_count;
    tvm_graph_text_argument *arguments;
    uint32_t after_count;
    uint32_t *after; /* earlier launches that it also waits for */
} tvm_graph_text_launch;

typedef struct tvm_graph_text {
    tvm_ir_program *head;
    uint8_t roles[TVM_MAX_PARAMS]; /* tvm_graph_text_role, of parameters that are tensors */
    tvm_ir_program *programs[TVM_GRAPH_TEXT_PROGRAMS]; /* NULL: could not be read, or was given away */
    uint32_t program_count;
    tvm_graph_text_launch *launches;
    uint32_t launch_count;
} tvm_graph_text;

/* NULL is fine. */
void tvm_graph_text_free(tvm_graph_text *text);

#endif
