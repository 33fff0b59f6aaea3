/* A launch on the PTX machine: the parameters as the kernel's ABI wants them, all blocks one after the other.
 */
#ifndef TVM_TESTS_PTX_LAUNCH_KIT_H
#define TVM_TESTS_PTX_LAUNCH_KIT_H

#include "abi_kit.h"
#include "codegen.h"
#include "ptx_machine.h"

/* A grid without blocks: as little is known of its tensors and views as is asked, for nothing is launched. */
static inline bool ptx_grid_is_empty(const tvm_launch_env *env) {
    return !env->grid[0] || !env->grid[1] || !env->grid[2];
}

/* The memory of the tensors that a launch makes: zeros, which the machine may access. */
typedef struct ptx_own {
    uint8_t *block[TVM_MAX_LAUNCH_TENSORS];
    uint64_t place[TVM_MAX_LAUNCH_TENSORS]; /* their addresses, for abi_set */
    uint32_t count;
} ptx_own;

static inline void ptx_own_make(ptx_own *own, ptx_machine *m, const tvm_ir_program *program,
                                const tvm_ir_kernel *kernel, const tvm_launch_env *env) {
    tvm_launch_tensor tensors[TVM_MAX_LAUNCH_TENSORS];
    own->count = ptx_grid_is_empty(env) ? 0 : tvm_launch_tensors(kernel, tensors);
    for (uint32_t i = 0; i < own->count; i++) {
        int64_t shape[TVM_MAX_RANK];
        uint64_t bytes;
        ck_assert_int_eq(tvm_launch_shape(program, kernel, tensors[i].slot, env, shape, &bytes, NULL),
                         TVM_OK);
        own->block[i] = aligned_alloc(256, (bytes + 256) / 256 * 256);
        ck_assert_ptr_nonnull(own->block[i]);
        memset(own->block[i], 0, bytes);
        own->place[i] = (uint64_t)(uintptr_t)own->block[i];
        ptx_allow(m, own->block[i], bytes);
    }
}

static inline void ptx_own_free(ptx_own *own) {
    for (uint32_t i = 0; i < own->count; i++) free(own->block[i]);
    own->count = 0;
}

/* Machines for the other blocks of the cluster, which access the memory that `m` may. */
static inline void ptx_peers_make(ptx_machine *m, const tvm_module *module, const tvm_kernel_code *code) {
    const uint32_t *cluster = code->abi.cluster;
    unsigned blocks = cluster[0] * cluster[1] * cluster[2];
    if (blocks <= 1) return;
    ck_assert_uint_le(blocks, PTX_PEERS);
    m->peers[0] = m;
    for (unsigned r = 1; r < blocks; r++) {
        m->peers[r] = malloc(sizeof *m);
        ck_assert_ptr_nonnull(m->peers[r]);
        *m->peers[r] = ptx_load(module->ptx, code->name, code->abi.threads);
        for (unsigned i = 0; i < m->memories; i++)
            ptx_allow(m->peers[r], m->memory[i].bytes, m->memory[i].size);
    }
    for (unsigned r = 0; r < blocks; r++) {
        ptx_machine *peer = m->peers[r];
        peer->peer_count = blocks;
        peer->rank = r;
        peer->steps_most = m->steps_most;
        peer->watch = m->watch;
        peer->watcher = m->watcher;
        peer->asks_again = m->asks_again;
        peer->order = m->order ? m->order + r : 0;
        peer->place[0] = r % cluster[0];
        peer->place[1] = r / cluster[0] % cluster[1];
        peer->place[2] = r / cluster[0] / cluster[1];
        memcpy(peer->peers, m->peers, sizeof m->peers);
        memcpy(peer->params, m->params, sizeof m->params);
        memcpy(peer->grid, m->grid, sizeof m->grid);
    }
}

/* `m` ends as the first of its peers does that traps or makes a fault. */
static inline void ptx_peers_run(ptx_machine *m) {
    for (unsigned r = 1; r < m->peer_count; r++)
        for (unsigned d = 0; d < 3; d++) m->peers[r]->block[d] = m->block[d] + m->peers[r]->place[d];
    ptx_run_cluster(m);
    for (unsigned r = 1; r < m->peer_count && !m->trapped && !m->fault[0]; r++) {
        m->trapped = m->peers[r]->trapped;
        memcpy(m->fault, m->peers[r]->fault, sizeof m->fault);
    }
}

static inline void ptx_peers_free(ptx_machine *m) {
    for (unsigned r = 1; r < m->peer_count; r++) {
        ptx_free(m->peers[r]);
        free(m->peers[r]);
    }
    m->peer_count = 0;
}

/* `m` is made of the module's code of the kernel; values and tensors are those of abi_set. Ends with the
 * first block, or cluster, that traps or makes a fault. */
static inline void ptx_launch(ptx_machine *m, const tvm_module *module, const tvm_ir_program *program,
                              const tvm_ir_kernel *kernel, const tvm_launch_env *env, const uint64_t *values,
                              const uint64_t *tensors) {
    const tvm_kernel_code *code = &module->kernels[kernel - program->kernels];
    const uint32_t *by = code->abi.cluster;
    ptx_tensor_map maps[TVM_ABI_TENSOR_MAPS];
    if (ptx_grid_is_empty(env)) return;
    abi_maps(&code->abi, program, kernel, env, values, tensors, maps);
    abi_set(&code->abi, values, tensors, env, maps, m->params, sizeof m->params / sizeof *m->params);
    memcpy(m->grid, env->grid, sizeof m->grid);
    uint32_t turns = tvm_abi_find(&code->abi, TVM_ABI_TURNS, 0);
    if (m->turns && turns != TVM_NONE) m->params[turns] = m->turns;
    ptx_peers_make(m, module, code);
    m->canceled = 0;
    for (m->block[2] = 0; m->block[2] < m->grid[2]; m->block[2] += by[2])
        for (m->block[1] = 0; m->block[1] < m->grid[1]; m->block[1] += by[1])
            for (m->block[0] = 0; m->block[0] < m->grid[0] - m->canceled && !m->trapped && !m->fault[0];
                 m->block[0] += by[0]) {
                if (m->peer_count > 0)
                    ptx_peers_run(m);
                else
                    ptx_run(m);
            }
    ptx_peers_free(m);
}

#endif
