/* The assembler's state: data alone, below all that works on it. Private to assembler/.
 *
 * Conventions of its functions: one that returns bool returns false exactly if it has reported an error (or
 * met poison, whose error has been reported before); its caller then gives the statement up. Tokens are read
 * in place: .for goes back to its body's first token. Values are scratch memory until tvm_asm_define. */
#ifndef TVM_ASSEMBLER_STATE_H
#define TVM_ASSEMBLER_STATE_H

#include "assembler.h"
#include "lexer.h"
#include "symbols.h"

enum {
    TVM_ASM_ERRORS = 20,          /* reported in one run */
    TVM_ASM_INCLUDES = 32,        /* depth */
    TVM_ASM_FRAMES = 256,         /* open .include, .if, .for, .scope and macros together */
    TVM_ASM_MACROS = 64,          /* depth */
    TVM_ASM_PARAMETERS = 64,      /* of a macro; columns of a table */
    TVM_ASM_ARRAY = 4096,         /* elements that one statement assigns */
    TVM_ASM_NESTING = 128,        /* of expressions */
    TVM_ASM_STATEMENTS = 1000000, /* executed */
    TVM_ASM_TOKENS = 50000000,    /* read or skipped */
    TVM_ASM_LIST = 65536,         /* items of a list */
    TVM_ASM_CONTROLS = 4096       /* open for, while, if, with elif counted */
};

/* A -D option. */
typedef struct tvm_define {
    const char *name;
    uint32_t length;
    tvm_value value;
    bool used;
} tvm_define;

typedef enum tvm_frame_kind {
    TVM_FRAME_FILE,
    TVM_FRAME_IF,
    TVM_FRAME_FOR,
    TVM_FRAME_MACRO, /* a call */
    TVM_FRAME_SCOPE
} tvm_frame_kind;

/* What is open while statements are executed. */
typedef struct tvm_frame {
    tvm_frame_kind kind;
    const tvm_source *source;
    uint32_t
        opener; /* token of the directive; FILE, MACRO: of .include or the call, in the caller's source */
    uint32_t resume;  /* FILE, MACRO: where the caller goes on; FOR: first token of the body */
    unsigned version; /* FILE, MACRO: the caller's */
    bool taken;       /* IF: a branch has been executed */
    bool has_else;    /* IF */
    bool entered;     /* a scope of static names is open */
    /* MACRO */
    const tvm_source *caller;
    uint32_t own_scope; /* tvm_asm's, to be restored */
    /* FOR; MACRO: its name */
    const char *name;
    uint32_t name_length;
    uint32_t line_end; /* of a .for and its statement in one line: the token that ends it; else 0 */
    bool is_list;
    tvm_value list;
    uint32_t index;
    int64_t next, end, step;
    tvm_value current;
} tvm_frame;

/* An open run-time for, while, if or role. */
typedef struct tvm_control {
    uint16_t op;
    bool has_else;
    uint32_t elifs; /* ends that `end` owes on top of its own */
    const tvm_source *source;
    uint32_t token;
} tvm_control;

/* The space that the .tune so far make. */
typedef struct tvm_tunes {
    tvm_word name[TVM_TUNE_NAMES];
    const tvm_token *token[TVM_TUNE_NAMES];
    unsigned names;
    tvm_value *values; /* TVM_TUNE_NAMES a point; malloc'ed */
    uint32_t points;
} tvm_tunes;

/* ---- layouts that are left out (infer.h) ---- */

/* What is known of a variable beside its slot. */
typedef struct tvm_open_slot {
    bool open;
    const tvm_source *source; /* where it was made: NULL: a parameter */
    const tvm_token *token;
} tvm_open_slot;

typedef struct tvm_open_insn {
    const tvm_source *source;
    const tvm_token *token;
} tvm_open_insn;

/* Of the kernel that is read; the arrays grow with it. */
typedef struct tvm_open_layouts {
    tvm_slot *shapes; /* the kernel's slots, each register tensor in its whole layout */
    uint32_t shape_count, shape_capacity;
    tvm_open_slot *slots; /* beside the kernel's */
    uint32_t slot_capacity;
    tvm_open_insn *insns;
    uint32_t insn_capacity;
    uint32_t count; /* open slots, shared ones too */
} tvm_open_layouts;

/* ---- the state ---- */

/* Errors so far. */
typedef struct tvm_asm_report {
    tvm_diags *diags;
    size_t diags_before; /* of others */
    unsigned errors;
    tvm_status status; /* of the first error */
    bool stopped;      /* no use to go on */
    unsigned muted;    /* errors are not reported: the caller says it better */
} tvm_asm_report;

/* The text: where in it the cursor is, and what is open around that. */
typedef struct tvm_asm_text {
    tvm_source *sources;
    const tvm_source *source;
    uint32_t at;        /* token */
    unsigned nesting;   /* of the expression being read */
    unsigned constants; /* expressions that are being read, whose values must be known */
    uint64_t statements;
    uint64_t tokens;
    tvm_frame frames[TVM_ASM_FRAMES];
    unsigned frame_count;
    unsigned includes;
    unsigned macros;              /* calls that are open */
    const tvm_source *let_source; /* where the .let that is being read was used, or NULL */
    const tvm_token *let_token;
    bool version_seen;
    bool left_out;    /* text, because of an error: what is not defined may have been defined there */
    unsigned version; /* of the language, as the file being read says, or as the one that includes it */
    unsigned latest;  /* of the versions that were said so far: what the program may need */
} tvm_asm_text;

/* Static names, and what -D and .tune say of them. */
typedef struct tvm_asm_statics {
    tvm_symbols names;
    tvm_define *defines;
    size_t define_count;
    tvm_tunes tunes;
} tvm_asm_statics;

/* The kernel that is read, or the entry, whose head is like that of a kernel. */
typedef struct tvm_asm_kernel_state {
    bool begun;
    bool is_entry;
    bool is_graph; /* what is read is a graph: the program is its head */
    uint32_t index;
    uint32_t entry;
    uint32_t first;      /* of an entry: the kernel that gave it its parameters, or TVM_NONE */
    uint32_t cases_seen; /* of the entry, right or wrong */
    const tvm_source *source;
    uint32_t token;
    unsigned frames;  /* open when it began */
    unsigned version; /* of the language, at its header */
    bool warps_seen, resident_seen, cluster_seen, grid_seen;
    bool warps_missed; /* reported */
    uint32_t role;     /* slot of the role around; TVM_NONE: there is none */
    tvm_team team;     /* of that role */
    tvm_symbols parameters;
    /* Variables (variables.c). */
    tvm_symbols slots;
    tvm_symbols elements;   /* of arrays, by the array's number and the indices */
    tvm_symbols slot_names; /* that the kernel's variables have; slot: the last number appended to it */
    uint32_t arrays;
    uint32_t own_scope; /* what is assigned in a macro is looked for from this scope of slots on */
    tvm_control controls[TVM_ASM_CONTROLS];
    unsigned control_count;
} tvm_asm_kernel_state;

/* The graph of the text. */
typedef struct tvm_asm_graph_state {
    tvm_graph_text *text;    /* NULL: there is none; malloc'ed */
    tvm_ir_program *kernels; /* while its statements are read, the program of the text's own kernels */
} tvm_asm_graph_state;

/* The statement that is read. */
typedef struct tvm_asm_statement_state {
    uint32_t line;
    const char *assigned; /* its variable, or NULL */
    uint32_t assigned_length;
    bool reports;    /* it prints: what it loads is called as what it loads from */
    uint32_t beside; /* one more than the tensor's slot that the operand being read is broadcast to, or 0 */
} tvm_asm_statement_state;

typedef struct tvm_asm {
    const tvm_assembler_options *options;
    tvm_ir_program *program;
    tvm_arena keep;    /* until the end */
    tvm_arena scratch; /* until the statement's end */
    tvm_asm_report report;
    tvm_asm_text text;
    tvm_asm_statics statics;
    tvm_asm_kernel_state kernel;
    tvm_asm_graph_state graph;
    tvm_asm_statement_state statement;
    tvm_open_layouts open; /* what the text leaves out (infer.h) */
} tvm_asm;

static inline tvm_ir_kernel *tvm_asm_kernel(const tvm_asm *as) {
    if (as->kernel.is_entry) return &as->program->entries[as->kernel.entry].head;
    return &as->program->kernels[as->kernel.index];
}

/* The warps that do the instruction at the cursor. */
static inline tvm_team tvm_asm_team(const tvm_asm *as) {
    return as->kernel.role == TVM_NONE ? tvm_block_team(tvm_asm_kernel(as)) : as->kernel.team;
}

#endif
