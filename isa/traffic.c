/* Bank passes, lines and sectors of a warp's access. */
#include "traffic.h"

#include <stdbool.h>

enum { WARP = 32, WORDS = 4, BLOCKS = 2 * WARP * WORDS };

unsigned tvm_lanes_together(unsigned width) {
    return width == 128 ? 8 : width == 64 ? 16 : 32;
}

/* Of lanes that are served together: the n-th different word of a bank is had in pass n. */
static unsigned passes_together(const uint32_t *address, unsigned lanes, unsigned words, unsigned first,
                                uint8_t *pass) {
    uint32_t seen[TVM_BANKS][WARP]; /* words of a bank: a lane has at most one of them */
    unsigned load[TVM_BANKS] = {0}, most = 0;
    for (unsigned i = 0; i < lanes; i++)
        for (unsigned w = 0; w < words; w++) {
            uint32_t word = address[i] / 4 + w, bank = word % TVM_BANKS, n = 0;
            while (n < load[bank] && seen[bank][n] != word) n++;
            if (n == load[bank]) seen[bank][load[bank]++] = word;
            if (load[bank] > most) most = load[bank];
            if (pass && w == 0) pass[i] = (uint8_t)(first + n);
        }
    return most;
}

unsigned tvm_bank_passes(const uint32_t *address, unsigned lanes, unsigned width, uint8_t *pass) {
    unsigned together = tvm_lanes_together(width), words = width > 32 ? width / 32 : 1, passes = 0;
    for (unsigned first = 0; first < lanes; first += together) {
        unsigned n = lanes - first < together ? lanes - first : together;
        passes += passes_together(address + first, n, words, passes, pass ? pass + first : 0);
    }
    return passes;
}

unsigned tvm_bank_passes_least(unsigned lanes, unsigned width) {
    unsigned together = tvm_lanes_together(width);
    return (lanes + together - 1) / together;
}

unsigned tvm_blocks_touched(const uint64_t *address, unsigned lanes, unsigned bytes, unsigned block) {
    uint64_t seen[BLOCKS];
    unsigned count = 0;
    for (unsigned i = 0; i < lanes; i++)
        for (uint64_t at = address[i] / block; at <= (address[i] + bytes - 1) / block; at++) {
            bool known = false;
            for (unsigned n = 0; n < count && !known; n++) known = seen[n] == at;
            if (!known && count < BLOCKS) seen[count++] = at;
        }
    return count;
}
