/* Text to program and back. */
#ifndef TVM_ASSEMBLER_H
#define TVM_ASSEMBLER_H

#include "graph_text.h"
#include "program.h"
#include "text.h"

/* What .tune makes: points, each a value for each name, the first the one that is assembled. Texts that -D
 * takes. */
enum { TVM_TUNE_NAMES = 16, TVM_TUNE_POINTS = 1 << 16, TVM_TUNE_VALUE = 64 };
typedef struct tvm_tune_space {
    char names[TVM_TUNE_NAMES][TVM_TUNE_VALUE];
    char (*values)[TVM_TUNE_VALUE]; /* of name n in point p: [p * name_count + n] */
    unsigned name_count;
    uint32_t point_count; /* 0: the program has no .tune */
} tvm_tune_space;
void tvm_tune_space_free(tvm_tune_space *space);

typedef struct tvm_assembler_options {
    const char *const *defines; /* "NAME=VALUE", each overriding the .const of that name */
    size_t define_count;
    const char *const *include_dirs; /* searched after the including file's own folder */
    size_t include_dir_count;
    tvm_text *layouts; /* NULL, or what gets a listing of the tensors' layouts and of why they have them */
    /* NULL, or what gives the text of an included file that is not as on disk: false for any other path. The
     * text lives as long as the call. */
    bool (*open_text)(void *open_context, const char *path, const char **text, size_t *length);
    void *open_context;
    unsigned *version;     /* NULL, or what gets the newest version of the language that the text names */
    tvm_tune_space *space; /* NULL, or what gets the space, also of a program with errors behind its .tune */
    void (*reads)(void *closure, const char *path); /* NULL, or called for each file that is included */
    void *closure;
    tvm_graph_text **graph; /* NULL: a text with a graph is refused. Else what gets the graph, the caller's
                               (tvm_graph_text_free), or NULL where the text has none; the program has the
                               kernels that stand beside it */
} tvm_assembler_options;

/* Assembles and verifies. `name` is the file named in diagnostics and against whose folder .include is
 * resolved ("-" or NULL: the current folder). options may be NULL. Several errors are reported in one run. On
 * success *program is the caller's (tvm_ir_program_free). */
tvm_status tvm_assemble_text(const char *text, size_t length, const char *name,
                             const tvm_assembler_options *options, tvm_ir_program **program,
                             tvm_diags *diags);

/* Text that assembles to the same program (line table aside). *text is malloc'ed and NUL-terminated. */
tvm_status tvm_disassemble(const tvm_ir_program *program, char **text, tvm_diags *diags);

/* A picture that is asked for: as text of at most 80 columns, or as SVG. */
typedef struct tvm_picture_request {
    const char
        *expression;    /* a register layout or a shared layout; of tvm_print_packing a low-precision type */
    const char *type;   /* of the elements in memory; NULL: f16 */
    const char *shared; /* NULL, or the shared layout that is accessed with the register layout */
    bool global;        /* a tile of a global tensor is accessed, */
    uint64_t row;       /* of which a row has as many elements; 0: as the tile's */
    bool svg;
    bool colour; /* of text: with a terminal's escape sequences */
} tvm_picture_request;

/* The picture of a layout, or of a warp's accesses to memory: tvm-as --print-layout. *text is malloc'ed. */
tvm_status tvm_print_layout(const tvm_picture_request *request, char **text, tvm_diags *diags);

/* A picture of the words of a block of a low-precision type in each packing: tvm-as --print-packing. */
tvm_status tvm_print_packing(const tvm_picture_request *request, char **text, tvm_diags *diags);

#endif
