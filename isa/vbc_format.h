/* clang-format off */
/* The container's constants. All numbers are little-endian; sections follow the table in its order, with no
 * bytes between or after them.
 *
 *   header    magic[8]  u32 version  u32 section count  u64 total size; from version 3 on: u32 language  u32 0
 *   table     for each section: tag[4]  u32 0  u64 offset  u64 size  u64 checksum (XXH3, 64 bits, seed 0)
 *   string    u32 length  bytes (UTF-8, no NUL)
 *   STRS      u32 count  strings
 *   LAYT      u32 count, of each: u8 rank  u8 modes  u8 spatials  u8 locals  u32 shape[rank]
 *             u32 mode_size[modes]  u8 mode_dim[modes]  i32 spatial[spatials]  u8 local[locals]
 *   SHRD      u32 count, of each: u8 rank  u8 modes  u8 base  u8 bits  u8 shift  u32 shape[rank]
 *             u32 mode_size[modes]  u32 mode_stride[modes]  u8 mode_dim[modes]
 *   KRNL      u32 count, of each:
 *             u32 name  u32 warps  u32 resident  from language 3 on: u32 cluster[3]
 *             u32 grid[3]  u32 parameters  u32 slots  u32 expressions
 *             u32 assumes  u32 insns
 *     slot    u32 name  u8 kind  u8 rank (of GLOBAL: + 16 * form, else 0)  dtype
 *             GLOBAL: u32 shape[rank], of form STRIDED: u32 stride[rank]
 *             REGISTER: u8 packing  u32 layout   SHARED: u32 layout
 *     dtype   u8 kind  u8 bits  u8 exponent  u8 mantissa
 *     expr    u8 op  dtype  u32 operand[arity]; SLOT, BLOCK, GRID: u32; INTEGER, FLOAT: u64
 *     assume  u32 expression
 *     insn    u16 op  u16 operand count  u32 result; of each operand: u8 kind  u32 value
 *   ENTR      (may be missing: no entries) u32 count, of each:
 *             u32 name  u32 expressions  u32 cases; expressions as above, whose slots are the parameters of the
 *             first case's kernel; of each case: u32 condition (an expression, or ffffffff: always)  u32 kernel
 *             from language 7 on: u32 cost (an expression, or ffffffff: none)
 *   LINE      (may be missing) u32 count  strings, the files; for each kernel and insn: u32 file  u32 line
 *   IMGS      (may be missing) u32 version  u32 count, of each: u32 code generator  u64 hash[2]
 *             u8 kind (0 PTX, 1 cubin)  string target  string maker  u32 facts  u32 fact[facts]
 *             u64 size  u8 code[size]; of version 1 in place of facts  u32 kernels  u32 words
 *             u32 fact[kernels][words]
 *   CERT      (may be missing, from language 7 on) u32 version; for each kernel: u32 words  u32 word[words]; what
 *             they say the checker knows alone (isa/check/check_read.c, vbc(5)) */
/* clang-format on */
#ifndef TVM_ISA_VBC_FORMAT_H
#define TVM_ISA_VBC_FORMAT_H

enum {
    VBC_MAGIC_SIZE = 8,
    VBC_HEADER_SIZE = 32,
    VBC_HEADER_SIZE_2 = 24, /* of version 2, which has no language: it is 1 */
    VBC_ENTRY_SIZE = 32,
    VBC_TAG_SIZE = 4,
    VBC_MAX_SECTIONS = 16,
    VBC_FORM_SHIFT = 4, /* of the form of a global tensor, above its rank */
    VBC_IMAGES_VERSION = 2,
    VBC_CERTIFICATES_VERSION = 1,
    VBC_IMAGE_MIN = 41, /* bytes of an image at least */
    VBC_IMAGE_PTX = 0,
    VBC_IMAGE_CUBIN = 1
};

/* As PNG's: a byte that is not ASCII, then ends of line of both kinds, which transfers as text would change.
 */
#define VBC_MAGIC "\x89VBC\r\n\x1a\n"

/* X(identifier, tag, required, since), in the order in which they are written; since is the version of the
 * language, which says also what a reader must know of the container. */
#define VBC_SECTIONS(X)                                                                                      \
    X(STRINGS, "STRS", true, 1)                                                                              \
    X(LAYOUTS, "LAYT", true, 1)                                                                              \
    X(SHARED, "SHRD", true, 1)                                                                               \
    X(KERNELS, "KRNL", true, 1)                                                                              \
    X(ENTRIES, "ENTR", false, 1)                                                                             \
    X(LINES, "LINE", false, 1)                                                                               \
    X(IMAGES, "IMGS", false, 1)                                                                              \
    X(CERTIFICATES, "CERT", false, 7)

enum {
#define VBC_SECTION_ENUM(id, tag, required, since) VBC_##id,
    VBC_SECTIONS(VBC_SECTION_ENUM)
#undef VBC_SECTION_ENUM
        VBC_SECTION_COUNT
};

#endif
