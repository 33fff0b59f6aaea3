/* Program to PTX, and PTX to cubin by ptxas. */
#ifndef TVM_CODEGEN_H
#define TVM_CODEGEN_H

#include "abi.h"

/* A target: sm_<arch><suffix>. feature 'a' allows architecture-specific instructions, '\0' none. */
typedef struct tvm_target {
    unsigned arch; /* 80, 86, 89, 90, 100, 120, ... */
    char feature;
} tvm_target;

/* "sm_90a" -> target; TVM_UNSUPPORTED with a diagnostic naming the known ones otherwise. */
tvm_status tvm_target_parse(const char *text, tvm_target *target, tvm_diags *diags);
const char *tvm_target_name(tvm_target target, char name[16]);
bool tvm_target_same(tvm_target a, tvm_target b);
/* What the target has: a row of the table in targets.c, which lives as long as the program. Whoever selects
 * instructions asks for this; no other code compares architectures with numbers. */
const tvm_target_traits *tvm_target_traits_of(tvm_target target);
bool tvm_target_has(tvm_target target, tvm_capability capability);
/* Of each architecture the target that has all it has, the oldest first. Writes at most `capacity`, returns
 * how many exist. */
size_t tvm_target_list(tvm_target *targets, size_t capacity);
/* The best target for a device of this compute capability (9, 0 -> sm_90a). For a device newer than all that
 * are known it is one whose PTX runs there, but no cubin does. */
tvm_status tvm_target_for_device(int major, int minor, tvm_target *target, tvm_diags *diags);
/* The best target of those for capability `asked` whose PTX runs on a device of `capability` (80 on one of 90
 * -> sm_80). TVM_UNSUPPORTED where there is none, as one later than the device. */
tvm_status tvm_target_asked(unsigned asked, unsigned capability, tvm_target *target, tvm_diags *diags);
/* What a compiler is to make of the target's PTX for a device of this capability: a cubin for the target
 * itself, or, where that would not run, for the device's own architecture. False: the driver compiles, as the
 * architecture is not known. */
bool tvm_target_machine(tvm_target target, unsigned capability, tvm_target *machine);
/* What programs see of a device of this capability (10 major + minor): the traits of its target; NULL where
 * it is older than all targets, as 0 is, the interpreter. */
const tvm_target_traits *tvm_target_traits_for(unsigned capability);
/* Does what is made for the target run on a device of this capability (10 major + minor)? CUDA C++
 * Programming Guide, "Binary Compatibility", "PTX Compatibility", "Feature Set Compiler Targets": a cubin on
 * devices of the same major and no lower minor number, but not between Tegra and other devices; PTX on all
 * that are no older; what is made for sm_100f and its like on what is known to be of its family, and no
 * older; for sm_90a and its like on exactly that one. */
bool tvm_target_cubin_runs(tvm_target target, unsigned capability);
bool tvm_target_ptx_runs(tvm_target target, unsigned capability);
/* Of two targets whose code runs on a device: does `a` come later, and have more? */
bool tvm_target_is_later(tvm_target a, tvm_target b);
/* Bytes of shared memory a block may have on the target. */
unsigned tvm_target_shared_bytes(tvm_target target);

/* What was selected for one instruction (--explain). Strings belong to the module. */
typedef struct tvm_selection {
    uint32_t insn;
    uint32_t line; /* of the program's source, 0 unknown */
    const char
        *instruction;      /* mnemonic and result, as the disassembler would name them: "%a = load-shared" */
    const char *candidate; /* the candidate taken: "ldmatrix.x4", "ld.global.v4.b32" */
    unsigned bits;         /* width of one access in bits; 0 for what does not access memory */
    unsigned count;        /* instructions emitted per thread */
    int conflicts;       /* extra shared-memory wavefronts per warp access over the minimum; -1: not shared */
    const char *refused; /* "ldmatrix.x4: layout is not ...; ..." or "" */
} tvm_selection;

enum { TVM_KERNEL_LOSS_MAX = 480 };

typedef struct tvm_kernel_code {
    const char *name;
    tvm_kernel_abi abi; /* also says why there is no code */
    tvm_selection *selections;
    size_t selection_count;
    /* from ptxas, once tvm_ptxas has run; -1 before */
    int registers, spill_stores, spill_loads, stack_bytes;
    char loss[TVM_KERNEL_LOSS_MAX]; /* each "Potential Performance Loss" that ptxas tells, with its number:
                                       wgmma that are serialized, setmaxnreg that is ignored; or "" */
} tvm_kernel_code;

typedef struct tvm_module {
    tvm_target target;
    tvm_target machine; /* that cubins are made for, a later one than the target's; {0}: the target */
    char *ptx;          /* NUL-terminated */
    size_t ptx_size;
    tvm_kernel_code *kernels; /* in the order of the program's */
    size_t kernel_count;
    uint8_t *cubin; /* NULL until tvm_ptxas */
    size_t cubin_size;
    char made_by[TVM_IMAGE_MADE_BY_MAX]; /* who made the cubin: "nvJitLink 13.0", "ptxas release 13.0,
                                            V13.0.88" */
    const char *made_by_why;             /* a reason to tell, or NULL */
    bool sets_registers;                 /* a kernel has setmaxnreg, which nvJitLink ignores */
    void *owner;                         /* of the strings */
} tvm_module;

/* The ABI of the module's kernels as numbers (tvm_abi_encode), malloc'ed: what is kept with code in the cache
 * and in bytecode files. */
tvm_status tvm_module_abi(const tvm_module *module, uint32_t **words, uint32_t *count, tvm_diags *diags);

/* Raised with every change of the generated code (`make update-ptx-hashes` then notes what it is now, and
 * tests/test_ptx_hashes finds a change without it): part of the cubin cache's key. Numbers may be left out.
 */
#define TVM_CODEGEN_VERSION 34

/* Translates every kernel of a verified program that its assumes allow on the target, and that a block of the
 * target has the shared memory for. Entry points have the kernels' names; what they take, or why there is
 * none, is in their ABI. */
tvm_status tvm_translate(const tvm_ir_program *program, tvm_target target, tvm_module **module,
                         tvm_diags *diags);
/* The same with options; none of them is what tvm_translate does. */
struct tvm_claims;
typedef struct tvm_translate_options {
    bool counts_turns; /* the code counts the turns of its loops and what its waits ask, and traps where they
                          are more than the launch allows (a row TVM_ABI_TURNS) */
    /* analysis/claims.h: takes down what the prover claims; the program has no pipelined loops, which are
     * translated as another program. NULL: nothing does. */
    struct tvm_claims *claims;
} tvm_translate_options;
tvm_status tvm_translate_with(const tvm_ir_program *program, tvm_target target,
                              const tvm_translate_options *options, tvm_module **module, tvm_diags *diags);
void tvm_module_free(tvm_module *module);
/* What its cubin is made for: the target, unless a later machine is named. */
tvm_target tvm_module_machine(const tvm_module *module);
/* Bytes of shared memory that a block needs on the target: of the tensors that live at a time, and of what
 * reduce passes through it. More than tvm_target_shared_bytes: code for the target is without the kernel. */
tvm_status tvm_kernel_shared_bytes(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                                   tvm_target target, uint64_t *bytes, tvm_diags *diags);
/* TVM_UNSUPPORTED when shared memory is what keeps the module from having what was asked for: a kernel that
 * is no entry's, or any of an entry's kernels. A variant that is left out beside others is no error. */
tvm_status tvm_module_check(const tvm_ir_program *program, const tvm_module *module, tvm_diags *diags);

/* Finds ptxas: $TVM_PTXAS, then <configured prefix>/bin, $CUDA_HOME/bin, PATH, /usr/local/cuda/bin. *path is
 * malloc'ed. TVM_NO_PTXAS with a message that names where it looked. */
tvm_status tvm_ptxas_find(char **path, tvm_diags *diags);
/* The version line of a ptxas program, malloc'ed: part of the cache's key. */
tvm_status tvm_ptxas_version(const char *path, char **version, tvm_diags *diags);
/* Runs ptxas (path may be NULL: found) on module->ptx, fills cubin and the resource usage. A ptxas that runs
 * longer than $TVM_PTXAS_TIMEOUT seconds (120 when not set) is killed. A failure's diagnostic carries what
 * ptxas printed. There are no temporary files. */
tvm_status tvm_ptxas(tvm_module *module, const char *path, tvm_diags *diags);

/* The report of --explain / --emit report: malloc'ed text. */
tvm_status tvm_report(const tvm_ir_program *program, const tvm_module *module, char **text, tvm_diags *diags);

/* A page of the report. */
typedef struct tvm_report_page {
    const char *title;
    const char
        *sass; /* the listing of the cubin, of a kernel's page that of the kernel; NULL: there is none */
    uint32_t kernel;   /* whose page it is; TVM_NONE: of all kernels, or of no one */
    const char *index; /* NULL: all in one page; else the index's name, which this is or stands beside */
    const char *stem;  /* of the index: kernels' pages are STEM-KERNEL.html */
} tvm_report_page;

/* The same, with the program's text where its files can be read, what a turn of each loop does, the stages of
 * pipelined loops, and the PTX, as an HTML page that needs nothing else: malloc'ed. */
tvm_status tvm_report_html(const tvm_ir_program *program, const tvm_module *module,
                           const tvm_report_page *page, char **text, tvm_diags *diags);

#endif
