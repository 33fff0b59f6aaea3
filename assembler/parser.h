/* The assembler's state, and what its files offer each other. Private to assembler/.
 *
 * Conventions: a function that returns bool returns false exactly if it has reported an error (or met poison,
 * whose error has been reported before); its caller then gives the statement up. Tokens are read in place:
 * .for goes back to its body's first token. Values are scratch memory until tvm_asm_keep. */
#ifndef TVM_ASSEMBLER_PARSER_H
#define TVM_ASSEMBLER_PARSER_H

#include "assembler.h"
#include "infer.h"
#include "language.h"
#include "lexer.h"
#include "suggest.h"
#include "symbols.h"
#include "verify.h"

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

/* A name, not terminated. */
typedef struct tvm_word {
    const char *name;
    uint32_t length;
} tvm_word;

/* .macro: its body is executed from its tokens. */
typedef struct tvm_macro_parameter {
    tvm_word name;
    bool variable;    /* written with a percent sign: stands for a variable of the caller */
    uint32_t initial; /* token of the value when it is left out; 0: it must be given */
} tvm_macro_parameter;

typedef struct tvm_macro {
    tvm_word name;
    const tvm_source *source;
    unsigned version; /* of the language, at .macro */
    uint32_t body;    /* token */
    const tvm_macro_parameter *parameters;
    uint32_t count;
} tvm_macro;

/* .table: values in named columns and rows. */
typedef struct tvm_row {
    tvm_word name;
    const tvm_value *values; /* one a column */
    bool kept;               /* its condition holds */
} tvm_row;

typedef struct tvm_table {
    tvm_word name;
    const tvm_word *columns;
    uint32_t column_count;
    const tvm_row *rows;
    uint32_t row_count;
    uint32_t *index;     /* rows by the hashes of their names, one more than their numbers; 0: none */
    uint32_t index_size; /* a power of two above the rows' number */
} tvm_table;

/* A nested instruction that was read and not written: what consumes it says where the result goes. */
typedef struct tvm_pending {
    unsigned op;
    const tvm_token *token;
    const tvm_operand *operands;
    uint32_t count;
    tvm_result_type type;
} tvm_pending;

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

typedef struct tvm_asm {
    const tvm_assembler_options *options;
    tvm_ir_program *program;
    tvm_diags *diags;
    size_t diags_before; /* of others */
    unsigned errors;
    tvm_status status; /* of the first error */
    bool stopped;      /* no use to go on */
    unsigned muted;    /* errors are not reported: the caller says it better */
    bool version_seen;
    bool left_out;    /* text, because of an error: what is not defined may have been defined there */
    unsigned version; /* of the language, as the file being read says, or as the one that includes it */
    unsigned latest;  /* of the versions that were said so far: what the program may need */

    tvm_tunes tunes;
    tvm_arena keep;    /* until the end */
    tvm_arena scratch; /* until the statement's end */
    tvm_source *sources;
    tvm_symbols names;
    tvm_define *defines;
    size_t define_count;

    const tvm_source *source;
    uint32_t at;      /* token */
    unsigned nesting; /* of the expression being read */
    uint64_t statements;
    uint64_t tokens;
    tvm_frame frames[TVM_ASM_FRAMES];
    unsigned frame_count;
    unsigned includes;
    unsigned macros;              /* calls that are open */
    const tvm_source *let_source; /* where the .let that is being read was used, or NULL */
    const tvm_token *let_token;

    uint32_t role;  /* slot of the role around; TVM_NONE: there is none */
    tvm_team team;  /* of that role */
    bool in_kernel; /* or in an entry, whose head is like that of a kernel */
    bool in_entry;
    uint32_t kernel_index;
    uint32_t entry_index;
    uint32_t entry_first; /* kernel that gave it its parameters, or TVM_NONE */
    uint32_t cases_seen;  /* of the entry, right or wrong */
    const tvm_source *kernel_source;
    uint32_t kernel_token;
    unsigned kernel_frames; /* open when it began */
    bool warps_seen, resident_seen, cluster_seen;
    bool grid_seen;
    unsigned kernel_version; /* of the language, at its header */
    bool warps_missed;       /* reported */
    tvm_symbols parameters;
    /* Variables of the kernel (variables.c). */
    tvm_symbols slots;
    tvm_symbols elements;   /* of arrays, by the array's number and the indices */
    tvm_symbols slot_names; /* that the kernel's variables have; slot: the last number appended to it */
    uint32_t arrays;
    uint32_t own_scope;   /* what is assigned in a macro is looked for from this scope of slots on */
    const char *assigned; /* variable of the statement, or NULL */
    bool reports;         /* the statement prints: what it loads is called as what it loads from */
    uint32_t assigned_length;
    uint32_t statement_line;
    uint32_t beside; /* one more than the tensor's slot that the operand being read is broadcast to, or 0 */
    tvm_open_layouts open; /* what the text leaves out (infer.h) */
    tvm_control controls[TVM_ASM_CONTROLS];
    unsigned control_count;
} tvm_asm;

/* result.c: the warps that do the instruction at the cursor. */
tvm_team tvm_asm_team(const tvm_asm *as);

static inline tvm_ir_kernel *tvm_asm_kernel(const tvm_asm *as) {
    if (as->in_entry) return &as->program->entries[as->entry_index].head;
    return &as->program->kernels[as->kernel_index];
}

/* ---- tokens (cursor.c) ---- */
const tvm_token *tvm_asm_peek(const tvm_asm *as);
const tvm_token *tvm_asm_ahead(const tvm_asm *as, uint32_t distance);
const tvm_token *tvm_asm_next(tvm_asm *as);                                   /* never moves past the end */
bool tvm_asm_is(const tvm_asm *as, const tvm_token *token, const char *text); /* a sign or an unpasted name */
bool tvm_asm_at(const tvm_asm *as, const char *text);
bool tvm_asm_accept(tvm_asm *as, const char *text);
bool tvm_asm_expect(tvm_asm *as, const char *text, const char *where); /* error: expected 'text' where */
bool tvm_asm_at_end(const tvm_asm *as);                                /* of the statement */
bool tvm_asm_expect_end(tvm_asm *as);
void tvm_asm_skip_statement(tvm_asm *as);
/* The text of a name token with ${...} pasted in; false on error. Lives in scratch memory or the source. */
bool tvm_asm_name(tvm_asm *as, const tvm_token *token, const char **text, uint32_t *length);
bool tvm_asm_expect_name(tvm_asm *as, const char *what, const char **text, uint32_t *length);
/* "'for'", "end of line": what stands at the token, for messages. */
const char *tvm_asm_found(const tvm_asm *as, const tvm_token *token, char text[80]);
/* The contents of a string token, escapes resolved, in scratch memory. */
bool tvm_asm_string(tvm_asm *as, const tvm_token *token, tvm_value *value);

/* ---- errors (cursor.c) ---- */
/* All return false. The place is that of the token (of the current source; NULL: no place). */
bool tvm_asm_error(tvm_asm *as, const tvm_token *token, const char *hint, const char *format, ...)
    __attribute__((format(printf, 4, 5))); /* TVM_SYNTAX */
bool tvm_asm_invalid(tvm_asm *as, const tvm_token *token, const char *hint, const char *format, ...)
    __attribute__((format(printf, 4, 5))); /* TVM_INVALID */
bool tvm_asm_error_in(tvm_asm *as, const tvm_source *source, const tvm_token *token, const char *hint,
                      const char *format, ...) __attribute__((format(printf, 5, 6)));
bool tvm_asm_no_memory(tvm_asm *as);

/* ---- expressions (expression.c) ---- */
bool tvm_asm_expression(tvm_asm *as, tvm_value *value);
/* A name, literal, call or parenthesis, with its `.` compositions, but without operators and `[`. */
bool tvm_asm_primary(tvm_asm *as, tvm_value *value);
/* `[e, e, ...]` after the opening bracket was consumed: up to and with the closing one. */
bool tvm_asm_list(tvm_asm *as, const char *close, tvm_value *list);
/* A static expression, checked. what: "the number of warps". */
bool tvm_asm_static_integer(tvm_asm *as, int64_t least, int64_t most, const char *what, int64_t *value);
bool tvm_asm_static(tvm_asm *as, const char *what, tvm_value *value);
/* A static condition, which may be an integer, too. */
bool tvm_asm_condition(tvm_asm *as, const char *what, bool *holds);
/* A type: the name of one, or a static name or expression in parentheses that is one. */
bool tvm_asm_type(tvm_asm *as, tvm_dtype *type);
/* Parses a text of its own, completely (-D values, ${...}). */
bool tvm_asm_expression_of_text(tvm_asm *as, const char *name, const char *text, size_t length,
                                tvm_value *value);
/* What a name that is not defined may have meant. */
bool tvm_asm_unknown_name(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length);

/* ---- operators (operators.c) ---- */
/* Adds a node to the kernel after its type has been checked; an error at token when it does not fit or limits
 * are met. */
bool tvm_asm_node(tvm_asm *as, const tvm_token *token, const tvm_expr *node, tvm_value *value);
bool tvm_asm_unary(tvm_asm *as, tvm_expr_op op, const tvm_token *token, const tvm_value *x, tvm_value *value);
bool tvm_asm_binary(tvm_asm *as, tvm_expr_op op, const tvm_token *token, const tvm_value *x,
                    const tvm_value *y, tvm_value *value);
bool tvm_asm_select(tvm_asm *as, const tvm_token *token, const tvm_value *c, const tvm_value *x,
                    const tvm_value *y, tvm_value *value);
bool tvm_asm_convert(tvm_asm *as, const tvm_token *token, tvm_dtype type, const tvm_value *x,
                     tvm_value *value);
/* The type a scalar has at run time: its own, or of a literal i32 (i64 where it does not fit) or f32. */
tvm_dtype tvm_asm_type_of(const tvm_asm *as, const tvm_value *value);
/* A scalar as an expression node of a type: constants are made of it, others cast where they differ. */
bool tvm_asm_lower(tvm_asm *as, const tvm_token *token, const tvm_value *value, tvm_dtype type,
                   uint32_t *expr);
/* Becomes the value one of the type where such a variable is assigned: literals that it can hold do, others
 * only widen. */
bool tvm_asm_adapts(const tvm_asm *as, const tvm_value *value, tvm_dtype to);
/* A scalar as an expression of its own type. */
bool tvm_asm_lower_own(tvm_asm *as, const tvm_token *token, const tvm_value *value, uint32_t *expr);
bool tvm_asm_to_bool(tvm_asm *as, const tvm_token *token, const tvm_value *x, tvm_value *value);
/* The common type of operands. */
tvm_dtype tvm_asm_common(const tvm_asm *as, const tvm_value *x, const tvm_value *y);
/* May a value of one scalar type become the other without loss of any value? */
bool tvm_asm_widens(tvm_dtype from, tvm_dtype to);

/* ---- functions (builtins.c, layout_builtins.c) ---- */
typedef struct tvm_call {
    const tvm_token *token; /* the name */
    const char *name;
    uint32_t length;
    const tvm_value *args;
    uint32_t count;
} tvm_call;
/* *known tells whether there is such a function; false is returned for errors alone. */
bool tvm_asm_call(tvm_asm *as, const tvm_call *call, tvm_value *value, bool *known);
bool tvm_asm_is_function(const char *name, size_t length);
bool tvm_asm_call_layout(tvm_asm *as, const tvm_call *call, tvm_value *value, bool *known);
bool tvm_asm_is_layout_function(const char *name, size_t length);
bool tvm_asm_arguments(tvm_asm *as, const tvm_call *call, uint32_t least, uint32_t most);
bool tvm_asm_argument_integer(tvm_asm *as, const tvm_call *call, uint32_t index, int64_t least, int64_t most,
                              int64_t *value);
void tvm_asm_offer_functions(tvm_suggest *suggest);
void tvm_asm_offer_layout_functions(tvm_suggest *suggest);
/* The functions' names in the tables' order; NULL past the last. */
const char *tvm_asm_function_name(size_t index);
const char *tvm_asm_layout_function_name(size_t index);
void tvm_asm_offer_types(tvm_suggest *suggest);
bool tvm_asm_compose(tvm_asm *as, const tvm_token *token, const tvm_value *x, const tvm_value *y,
                     tvm_value *value);
/* A list of positive extents (or one nested level of it), as for local(...), [..] of a type, a tile. */
/* `n, grid.x]`: the shape of a global tensor, past its bracket; `leaves` as of tvm_expr_leaves, beside what
 * every launch-time expression may have. */
bool tvm_asm_global_shape(tvm_asm *as, unsigned leaves, uint32_t *rank, uint32_t shape[TVM_MAX_RANK]);
/* The strides, past their bracket, of one of that rank. */
bool tvm_asm_global_strides(tvm_asm *as, unsigned leaves, uint32_t rank, uint32_t stride[TVM_MAX_RANK]);
bool tvm_asm_extents(tvm_asm *as, const tvm_token *token, const tvm_value *items, uint32_t count,
                     const char *what, unsigned most, uint32_t *extents, uint32_t *extent_count);
bool tvm_asm_auto_layout(tvm_asm *as, const tvm_token *token, unsigned rank, const uint32_t *shape,
                         unsigned bits, tvm_layout *layout);

/* ---- parameters (names.c) and variables (variables.c) of a kernel ----
 * They have names of their own; the percent sign of variables tells them apart. The name of an element of an
 * array is that of the array and its indices, `acc[0, 1]`, that of a field the record's and its own,
 * `at.step`. */
/* The slot of a parameter or of a variable: NULL when there is none. slot is TVM_NONE when its definition
 * failed. */
const tvm_symbol *tvm_asm_find_parameter(const tvm_asm *as, const char *name, uint32_t length);
const tvm_symbol *tvm_asm_find_slot(const tvm_asm *as, const char *name, uint32_t length);
/* What is read as `%name`: a variable; with version 1 of the language a parameter as well, where no variable
 * has the name. */
const tvm_symbol *tvm_asm_find_local(const tvm_asm *as, const char *name, uint32_t length);
/* What `%name = ` assigns: in a macro, variables of the caller that are not its parameters are left out. */
const tvm_symbol *tvm_asm_find_assigned(const tvm_asm *as, const char *name, uint32_t length);
bool tvm_asm_is_array(const tvm_asm *as, const char *name, uint32_t length);
bool tvm_asm_is_record(const tvm_asm *as, const char *name, uint32_t length);
void tvm_asm_offer_fields(const tvm_asm *as, tvm_suggest *suggest, const char *record, uint32_t length);
bool tvm_asm_add_parameter(tvm_asm *as, const char *name, uint32_t length, const tvm_slot *slot);
void tvm_asm_poison_parameter(tvm_asm *as, const char *name, uint32_t length);
/* Creates the slot of a new name. The program knows it by that name where no other variable has it. */
bool tvm_asm_add_slot(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length,
                      const tvm_slot *slot, uint32_t *index);
/* A slot that no name of the text reaches, called after the variable that the statement assigns. */
bool tvm_asm_add_temporary(tvm_asm *as, const tvm_token *token, const tvm_slot *slot, uint32_t *index);
void tvm_asm_poison_slot(tvm_asm *as, const char *name, uint32_t length);
/* The name at the cursor, past the percent sign, with its fields: `at.step`. */
bool tvm_asm_variable_name(tvm_asm *as, const char **name, uint32_t *length);
/* The name at the cursor of what is read: of a variable (`local`, past its percent sign) with the indices of
 * an element. */
bool tvm_asm_read_name(tvm_asm *as, bool local, const char **name, uint32_t *length);
/* name[i, j] of an array. */
bool tvm_asm_element_name(tvm_asm *as, const tvm_token *token, const tvm_value *indices, const char **name,
                          uint32_t *length);
/* The symbol that a macro's parameter stands for: it is made where there is none. */
bool tvm_asm_locate(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length,
                    tvm_symbols **home, uint32_t *index);
void tvm_asm_forget_variables(tvm_asm *as);

/* ---- names of a program (names.c) ---- */
/* Makes an unknown static name silent in the current scope; it may still be defined there. */
void tvm_asm_poison_name(tvm_asm *as, const char *name, uint32_t length);
/* Defines a static name in the current scope. */
bool tvm_asm_define(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length,
                    const tvm_value *value);
/* May this name be given to something? Reports why not. */
bool tvm_asm_check_name(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length);
/* "%acc is a register tensor f32[16, 128]" parts: kind of slot in words. */
const char *tvm_asm_slot_what(tvm_slot_kind kind);
bool tvm_asm_slot_value(tvm_asm *as, const tvm_token *token, uint32_t slot, const char *name, uint32_t length,
                        tvm_value *value);
/* Is `%name` at the cursor? (a sign % and a name that follows without a blank) */
bool tvm_asm_at_local(const tvm_asm *as);

/* ---- tensors as values (nested.c) ---- */
/* `mnemonic(` of an instruction that gives a register tensor, and not of a function? */
bool tvm_asm_at_nested(const tvm_asm *as, uint32_t *tokens);
bool tvm_asm_nested(tvm_asm *as, tvm_value *value);
/* The instruction of an operator or function whose operands are tensors, or tensors and scalars. */
bool tvm_asm_tensor_operation(tvm_asm *as, unsigned op, const tvm_token *token, const tvm_value *operands,
                              uint32_t count, tvm_value *value);
/* Writes the instruction that a value waits for, if it does, with a temporary variable as its result. */
bool tvm_asm_settle(tvm_asm *as, tvm_value *value);

/* ---- statements (directives.c, kernel.c, entry.c, statement.c, instruction.c, result.c) ---- */
void tvm_asm_statement(tvm_asm *as); /* in a kernel, not a directive */
bool tvm_asm_instruction(tvm_asm *as, const tvm_token *token, unsigned op, const tvm_token *result,
                         const char *result_name, uint32_t result_length);
/* Reads the operands of a nested instruction, up to and with the closing parenthesis. */
bool tvm_asm_nested_operands(tvm_asm *as, const tvm_token *token, unsigned op, tvm_value *value);
/* The words that begin statements with a syntax of their own; NULL past the last. */
const char *tvm_asm_own_word(size_t index);
/* Longest mnemonic of the version of the language at the cursor: its opcode and how many tokens; TVM_OP_COUNT
 * if there is none. */
unsigned tvm_asm_mnemonic(const tvm_asm *as, uint32_t *tokens);
/* The hyphenated word at the cursor, whatever it means. */
uint32_t tvm_asm_word(const tvm_asm *as, const char **text, uint32_t *length);
bool tvm_asm_emit(tvm_asm *as, const tvm_token *token, unsigned op, uint32_t result,
                  const tvm_operand *operands, uint32_t count);
/* Infers, makes or checks the slot of the result, and appends the instruction. */
bool tvm_asm_finish(tvm_asm *as, const tvm_token *token, unsigned op, const tvm_token *result_token,
                    const char *result_name, uint32_t result_length, const tvm_operand *operands,
                    uint32_t count, tvm_result_type *type);
/* The same with a temporary variable as result. */
bool tvm_asm_finish_temporary(tvm_asm *as, const tvm_pending *pending, uint32_t *slot);
bool tvm_asm_check_warps(tvm_asm *as, const tvm_token *token);

void tvm_asm_directive(tvm_asm *as);
bool tvm_asm_kernel_header(tvm_asm *as, const tvm_token *token);
bool tvm_asm_signature(tvm_asm *as, const tvm_token *token);
bool tvm_asm_kernel_end(tvm_asm *as, const tvm_token *token);
void tvm_asm_kernel_open(tvm_asm *as, const tvm_token *token);
void tvm_asm_kernel_close(tvm_asm *as); /* without a check */
/* The name of a kernel or entry that begins here. */
bool tvm_asm_launch_name(tvm_asm *as, const char *what, const char **name, uint32_t *length);
/* Can a launch evaluate the expression? leaves: what it may read beside TVM_LEAF_LAUNCH; what: "a grid
 * extent". */
bool tvm_asm_launch_time(tvm_asm *as, const tvm_token *token, uint32_t expr, unsigned leaves,
                         const char *what);
bool tvm_asm_resident(tvm_asm *as);
bool tvm_asm_cluster(tvm_asm *as, const tvm_token *token);
bool tvm_asm_warps(tvm_asm *as);
bool tvm_asm_grid(tvm_asm *as, const tvm_token *token);
bool tvm_asm_assume(tvm_asm *as);
bool tvm_asm_entry_header(tvm_asm *as, const tvm_token *token);
bool tvm_asm_case(tvm_asm *as, const tvm_token *token);
bool tvm_asm_entry_check(tvm_asm *as); /* at its end */
/* Reports a directive that does not exist, at its name. */
void tvm_asm_unknown_directive(tvm_asm *as, const tvm_token *name);
void tvm_asm_offer_directives(tvm_suggest *suggest);
/* The directives' names without the dot; NULL past the last. */
const char *tvm_asm_directive_name(size_t index);

/* ---- running (frames.c) ---- */
void tvm_asm_run(tvm_asm *as);
bool tvm_asm_push_source(tvm_asm *as, const tvm_source *source, uint32_t opener);
bool tvm_asm_include(tvm_asm *as, const tvm_token *token);
bool tvm_asm_if(tvm_asm *as, const tvm_token *token);
bool tvm_asm_elif(tvm_asm *as, const tvm_token *token, bool is_else);
bool tvm_asm_endif(tvm_asm *as, const tvm_token *token);
bool tvm_asm_for(tvm_asm *as, const tvm_token *token);
bool tvm_asm_endfor(tvm_asm *as, const tvm_token *token);
tvm_frame *tvm_asm_open_frame(tvm_asm *as, tvm_frame_kind kind, const tvm_token *token);
/* The innermost frame that is no .if, if it is of this kind and in this source; what is open in it is an
 * error. */
tvm_frame *tvm_asm_innermost(tvm_asm *as, tvm_frame_kind kind);
void tvm_asm_close_frame(tvm_asm *as);
/* To the closer that matches, or (of .if) the next branch; the cursor stays before it, or at the end of the
 * file. From version 2 of the language on, what is skipped is made of directives that exist: a misspelt .else
 * would be skipped with the rest. */
void tvm_asm_skip_to(tvm_asm *as, const char *opener, const char *closer, bool branches);
/* Past `name = expression` and the like: to the comma, closing parenthesis or end of the statement that ends
 * it. */
void tvm_asm_skip_expression(tvm_asm *as);

/* ---- .tune (tune.c), and what it shares with .const (directives.c) ---- */
bool tvm_asm_tune(tvm_asm *as, const tvm_token *token);
/* -D wins over the first .const or .tune of that name at top level: the value becomes what it gives. *given
 * (may be NULL): it gives one. */
bool tvm_asm_overridden(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length,
                        tvm_value *value, bool *given);

/* ---- macros and scopes (macro.c), tables (table.c) ---- */
bool tvm_asm_macro(tvm_asm *as, const tvm_token *token);
bool tvm_asm_endmacro(tvm_asm *as, const tvm_token *token);
/* The macro that a statement `NAME(` calls, or NULL. */
const tvm_macro *tvm_asm_macro_at(tvm_asm *as);
void tvm_asm_call_macro(tvm_asm *as, const tvm_macro *macro);
bool tvm_asm_scope(tvm_asm *as, const tvm_token *token);
bool tvm_asm_endscope(tvm_asm *as, const tvm_token *token);
bool tvm_asm_table(tvm_asm *as, const tvm_token *token);
/* `.row`, `.column` after a table or a row of one, as often as they stand there. */
bool tvm_asm_members(tvm_asm *as, tvm_value *value);
/* The rows that are kept, as a list. */
bool tvm_asm_rows(tvm_asm *as, const tvm_table *table, tvm_value *list);
/* Defines the columns of a row as constants. */
bool tvm_asm_define_columns(tvm_asm *as, const tvm_token *token, const tvm_value *row);
/* The value of a .let. */
bool tvm_asm_let_value(tvm_asm *as, const tvm_token *token, const tvm_value *let, tvm_value *value);
/* Closes the frames above the first `count`, with an error for each: they should have been closed before. */
bool tvm_asm_close_frames(tvm_asm *as, unsigned count);

/* ---- finishing (canonical.c) ---- */
/* The same program with every pool in the order of a walk over the text that tvm_disassemble writes, and
 * nothing in it that is not used. NULL when out of memory. */
tvm_ir_program *tvm_asm_canonical(const tvm_ir_program *program, tvm_diags *diags);

#endif
