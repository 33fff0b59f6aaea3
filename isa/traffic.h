/* What one access of a warp costs: passes through the 32 banks of shared memory, and lines and sectors of
 * global memory. Pure functions of the lanes' addresses, which codegen asks to choose accesses, the pictures
 * to mark conflicts, and the interpreter to count. */
#ifndef TVM_ISA_TRAFFIC_H
#define TVM_ISA_TRAFFIC_H

#include <stdint.h>

enum {
    TVM_BANKS = 32, /* of 4 bytes */
    TVM_LINE_BYTES = 128,
    TVM_SECTOR_BYTES = 32
};

/* Lanes that are served together: accesses of 16 bytes are done by quarter warps, of 8 bytes by half warps,
 * narrower ones by the whole warp at once. `width` in bits. */
unsigned tvm_lanes_together(unsigned width);

/* The passes of one access: `address[lane]`, in bytes, is where each lane's `width` bits (8 to 128) begin.
 * Lanes that are served together take as many passes as the most different words that they want of one bank;
 * equal words are read at once. pass (may be NULL) gets each lane's first pass, counted over the whole
 * access. */
unsigned tvm_bank_passes(const uint32_t *address, unsigned lanes, unsigned width, uint8_t *pass);
/* The passes of the same access without a conflict. */
unsigned tvm_bank_passes_least(unsigned lanes, unsigned width);

/* Different blocks of `block` bytes (a line or a sector) that the lanes touch, each `bytes` bytes from its
 * address on; at most 64 lanes' worth of 16 bytes. */
unsigned tvm_blocks_touched(const uint64_t *address, unsigned lanes, unsigned bytes, unsigned block);

#endif
