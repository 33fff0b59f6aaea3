/* The targets: which has what. Nothing else in the project knows an architecture by its number, but what
 * matches targets with devices (target.c).
 *
 * Sources: PTX ISA 8.8 and 9.0, "Target ISA Notes" of each instruction and "Release Notes" (the least version
 * that has the target); CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" (shared
 * memory that a block may have, opted in, and registers of a multiprocessor), "Family-Specific Feature Set"
 * and "Binary Compatibility" (that of Tegra); ptxas 13.0, which warns of multicasts on targets that have them
 * not here; `ptxas --help` of CUDA 13.0, --gpu-name, says the same of
 * families. */
#include "target.h"

#define HAS(id) (UINT64_C(1) << TVM_HAS_##id)

/* What each generation adds. Products of f8 by mma.sync raise the version of PTX to 8.4 where they are. */
#define AMPERE    (HAS(LDMATRIX) | HAS(CP_ASYNC))
#define AMPERE_86 (AMPERE | HAS(MIN_XORSIGN))
#define ADA       (AMPERE_86 | HAS(MMA_F8) | HAS(MMA_F8_CORES) | HAS(CVT_F8))
#define SINCE_90                                                                                             \
    (AMPERE_86 | HAS(MMA_F8) | HAS(STMATRIX) | HAS(BULK) | HAS(CLUSTERS) | HAS(TRY_WAIT) |                   \
     HAS(ARRIVE_COUNT) | HAS(GRIDDEPCONTROL) | HAS(MMA_F64_M16) | HAS(CVT_F8) | HAS(BF16_ARITHMETIC) |       \
     HAS(RED_BF16) | HAS(RED_VECTOR))
#define HOPPER        (SINCE_90 | HAS(WGMMA) | HAS(SETMAXNREG) | HAS(MULTICAST))
#define SINCE_100     (SINCE_90 | HAS(LAUNCH_CONTROL))
#define BLACKWELL     (SINCE_100 | HAS(TCGEN05) | HAS(SETMAXNREG) | HAS(MULTICAST))
#define BLACKWELL_100 (BLACKWELL | HAS(TCGEN05_I8))
#define SINCE_120     (SINCE_100 | HAS(MMA_F8_CORES))
#define BLACKWELL_120 (SINCE_120 | HAS(SETMAXNREG) | HAS(MMA_F8F6F4) | HAS(MMA_BLOCK_SCALE))

#define KIB 1024

/* The oldest architecture first; of one architecture what every later one runs, then what the later ones of
 * its family run, then what it has alone. */
const tvm_target_record tvm_target_records[] = {
    {{80, '\0'}, 80, {AMPERE, {163 * KIB, 65536}}, 0, false},   /* A100, A30 */
    {{86, '\0'}, 80, {AMPERE_86, {99 * KIB, 65536}}, 0, false}, /* A40, A10, GeForce 30 */
    {{87, '\0'}, 80, {AMPERE_86, {163 * KIB, 65536}}, 0, true}, /* Jetson Orin */
    {{89, '\0'}, 81, {ADA, {99 * KIB, 65536}}, 0, false},       /* L40S, L4, GeForce 40 */
    {{90, '\0'}, 81, {SINCE_90, {227 * KIB, 65536}}, 0, false}, /* H100, H200 */
    {{90, 'a'}, 81, {HOPPER, {227 * KIB, 65536}}, 0, false},
    {{100, '\0'}, 86, {SINCE_100, {227 * KIB, 65536}}, 0, false}, /* B200, GB200 */
    {{100, 'f'}, 88, {BLACKWELL, {227 * KIB, 65536}}, 103, false},
    {{100, 'a'}, 86, {BLACKWELL_100, {227 * KIB, 65536}}, 0, false},
    {{103, '\0'}, 88, {SINCE_100, {227 * KIB, 65536}}, 0, false}, /* B300, GB300 */
    {{103, 'f'}, 88, {BLACKWELL, {227 * KIB, 65536}}, 0, false},
    {{103, 'a'}, 88, {BLACKWELL, {227 * KIB, 65536}}, 0, false},
    {{110, '\0'}, 90, {SINCE_100, {227 * KIB, 65536}}, 0, true}, /* Jetson Thor */
    {{110, 'f'}, 90, {BLACKWELL, {227 * KIB, 65536}}, 0, true},
    {{110, 'a'}, 90, {BLACKWELL_100, {227 * KIB, 65536}}, 0, true},
    {{120, '\0'}, 87, {SINCE_120, {99 * KIB, 65536}}, 0, false}, /* RTX PRO 6000, GeForce 50 */
    {{120, 'f'}, 88, {BLACKWELL_120, {99 * KIB, 65536}}, 121, false},
    {{120, 'a'}, 87, {BLACKWELL_120, {99 * KIB, 65536}}, 0, false},
    {{121, '\0'}, 88, {SINCE_120, {99 * KIB, 65536}}, 0, false}, /* GB10 */
    {{121, 'f'}, 88, {BLACKWELL_120, {99 * KIB, 65536}}, 0, false},
    {{121, 'a'}, 88, {BLACKWELL_120, {99 * KIB, 65536}}, 0, false},
};
const size_t tvm_target_record_count = sizeof tvm_target_records / sizeof *tvm_target_records;
