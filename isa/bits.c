/* Compact bit strings: elements of any width from 1 to 64 bits, one directly after the other. */
#include <string.h>

#include "types.h"

static uint64_t low_bits(unsigned count) {
    return count >= 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1;
}

static uint64_t load_little(const uint8_t *bytes, unsigned count) {
    uint64_t word = 0;
    for (unsigned i = 0; i < count; i++) word |= (uint64_t)bytes[i] << (8 * i);
    return word;
}

static void store_little(uint8_t *bytes, unsigned count, uint64_t word) {
    for (unsigned i = 0; i < count; i++) bytes[i] = (uint8_t)(word >> (8 * i));
}

/* Only bytes that hold a bit of the element are touched. */
uint64_t tvm_bits_get(const uint8_t *string, uint64_t bit, unsigned bits) {
    const uint8_t *bytes = string + bit / 8;
    unsigned shift = bit % 8;
    unsigned count = (shift + bits + 7) / 8;
    uint64_t code = load_little(bytes, count > 8 ? 8 : count) >> shift;
    if (count > 8) code |= (uint64_t)bytes[8] << (64 - shift);
    return code & low_bits(bits);
}

void tvm_bits_set(uint8_t *string, uint64_t bit, unsigned bits, uint64_t code) {
    uint8_t *bytes = string + bit / 8;
    unsigned shift = bit % 8;
    code &= low_bits(bits);
    for (unsigned done = 0; done < bits; shift = 0) {
        unsigned here = 8 - shift < bits - done ? 8 - shift : bits - done;
        uint8_t mask = (uint8_t)(low_bits(here) << shift);
        *bytes = (uint8_t)((*bytes & ~mask) | ((code >> done << shift) & mask));
        bytes++;
        done += here;
    }
}

static bool little_endian_host(void) {
    const uint16_t one = 1;
    uint8_t first;
    memcpy(&first, &one, 1);
    return first == 1;
}

/* May the bit string be copied from and to containers as it is? */
static bool is_plain(tvm_dtype type, uint64_t bit) {
    return bit % 8 == 0 && type.bits == 8 * tvm_dtype_container(type) &&
           (type.bits == 8 || little_endian_host());
}

/* Groups of eight elements of 1 to 7 bits, as long as a whole word can be read; returns how many elements.
 * Called with a constant width, so that each width gets its own unrolled loop. */
static inline size_t unpack_groups(unsigned bits, const uint8_t *string, uint64_t bit, size_t count,
                                   uint8_t *containers) {
    const uint8_t *bytes = string + bit / 8;
    unsigned shift = bit % 8;
    size_t size = (shift + count * bits + 7) / 8;
    size_t done = 0;
    for (; count - done >= 8 && size >= 8; done += 8, bytes += bits, size -= bits) {
        uint64_t word = load_little(bytes, 8) >> shift;
        for (unsigned i = 0; i < 8; i++)
            containers[done + i] = (uint8_t)(word >> (i * bits) & ((1u << bits) - 1));
    }
    return done;
}

#define EACH_WIDTH(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

static size_t unpack_small(unsigned bits, const uint8_t *string, uint64_t bit, size_t count, uint8_t *to) {
#define UNPACK(width)                                                                                        \
    if (bits == width) return unpack_groups(width, string, bit, count, to);
    EACH_WIDTH(UNPACK)
    return 0;
}

void tvm_bits_unpack(tvm_dtype type, const uint8_t *string, uint64_t bit, size_t count, void *containers) {
    if (count == 0) return;
    if (is_plain(type, bit)) {
        memcpy(containers, string + bit / 8, count * (type.bits / 8u));
        return;
    }
    size_t done = unpack_small(type.bits, string, bit, count, containers);
    for (; done < count; done++)
        tvm_container_set(type, containers, done, tvm_bits_get(string, bit + done * type.bits, type.bits));
}

/* Eight elements of 1 to 7 bits fill whole bytes when they begin at one. */
static inline size_t pack_groups(unsigned bits, uint8_t *bytes, size_t count, const uint8_t *containers) {
    size_t done = 0;
    for (; count - done >= 8; done += 8, bytes += bits) {
        uint64_t word = 0;
        for (unsigned i = 0; i < 8; i++)
            word |= (uint64_t)(containers[done + i] & ((1u << bits) - 1)) << (i * bits);
        store_little(bytes, bits, word);
    }
    return done;
}

static size_t pack_small(unsigned bits, uint8_t *bytes, size_t count, const uint8_t *from) {
#define PACK(width)                                                                                          \
    if (bits == width) return pack_groups(width, bytes, count, from);
    EACH_WIDTH(PACK)
    return 0;
}

void tvm_bits_pack(tvm_dtype type, uint8_t *string, uint64_t bit, size_t count, const void *containers) {
    if (count == 0) return;
    if (is_plain(type, bit)) {
        memcpy(string + bit / 8, containers, count * (type.bits / 8u));
        return;
    }
    size_t done = 0;
    for (; done < count; done++) {
        uint64_t at = bit + done * type.bits;
        if (at % 8 == 0 && type.bits < 8) {
            const uint8_t *rest = (const uint8_t *)containers + done;
            size_t packed = pack_small(type.bits, string + at / 8, count - done, rest);
            done += packed;
            if (done == count) return;
            at += packed * type.bits;
        }
        tvm_bits_set(string, at, type.bits, tvm_container_get(type, containers, done));
    }
}

uint64_t tvm_container_get(tvm_dtype type, const void *containers, size_t index) {
    const uint8_t *bytes = containers;
    uint64_t code;
    switch (tvm_dtype_container(type)) {
    case 1:
        code = bytes[index];
        break;
    case 2: {
        uint16_t half;
        memcpy(&half, bytes + 2 * index, sizeof half);
        code = half;
        break;
    }
    case 4: {
        uint32_t word;
        memcpy(&word, bytes + 4 * index, sizeof word);
        code = word;
        break;
    }
    default:
        memcpy(&code, bytes + 8 * index, sizeof code);
    }
    return code & low_bits(type.bits);
}

void tvm_container_set(tvm_dtype type, void *containers, size_t index, uint64_t code) {
    uint8_t *bytes = containers;
    code &= low_bits(type.bits);
    uint16_t half = (uint16_t)code;
    uint32_t word = (uint32_t)code;
    switch (tvm_dtype_container(type)) {
    case 1:
        bytes[index] = (uint8_t)code;
        break;
    case 2:
        memcpy(bytes + 2 * index, &half, sizeof half);
        break;
    case 4:
        memcpy(bytes + 4 * index, &word, sizeof word);
        break;
    default:
        memcpy(bytes + 8 * index, &code, sizeof code);
    }
}
