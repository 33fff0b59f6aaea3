/* An access that nothing orders after an earlier one: its kind, the threads of both, and a hint. */
#include "sanitize_impl.h"
#include "shared_view.h"

#include <inttypes.h>
#include <string.h>

/* ---- who ---- */

typedef struct party {
    const san_event *event;
    const san_block *block; /* NULL: another one than those that run */
    int32_t index[3];
    uint32_t local; /* actor of the block */
} party;

static party find_party(const sanitizer *s, uint32_t number) {
    party p = {.event = &s->events[number]};
    uint64_t block = p.event->actor / s->actor_count;
    const uint32_t *grid = s->run->grid;
    p.local = p.event->actor % s->actor_count;
    p.index[0] = (int32_t)(block % grid[0]);
    p.index[1] = (int32_t)(block / grid[0] % grid[1]);
    p.index[2] = (int32_t)(block / grid[0] / grid[1]);
    for (uint32_t b = 0; b < s->block_count; b++)
        if (s->blocks[b].first_actor == block * s->actor_count) p.block = &s->blocks[b];
    return p;
}

static bool is_context(const sanitizer *s, const party *p) {
    return p->local < s->context_count * SAN_ACTORS;
}

/* Of the context's role; NULL: the block's own. */
static const char *role_of(const sanitizer *s, const party *p) {
    const tvm_ir_kernel *kernel = s->kernel->kernel;
    uint32_t context = p->local / SAN_ACTORS, first = 1;
    if (!is_context(s, p) || context == 0) return NULL;
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        if (tvm_insn_class(&kernel->insns[i]) != TVM_CLASS_SECTION) continue;
        const tvm_role role = tvm_role_of(kernel, &kernel->insns[i]);
        if (context < first + tvm_role_teams(&role))
            return interp_slot_name(s->kernel, kernel->insns[i].result);
        first += tvm_role_teams(&role);
    }
    return NULL;
}

static bool is_copy(const sanitizer *s, const party *p) {
    return !is_context(s, p) || p->local % SAN_ACTORS >= SANITIZE_COPY;
}

/* Of the block that does it; of a copy that is another one than the mbarrier's may be. */
static void find_maker(const sanitizer *s, const party *p, int32_t index[3]) {
    const uint32_t *extent = s->kernel->kernel->cluster;
    uint32_t rest = p->event->rank;
    for (unsigned d = 0; d < 3; d++) {
        index[d] = p->index[d] - p->index[d] % (int32_t)extent[d] + (int32_t)(rest % extent[d]);
        rest /= extent[d];
    }
}

static bool is_far(const sanitizer *s, const party *p) {
    int32_t maker[3];
    find_maker(s, p, maker);
    return memcmp(maker, p->index, sizeof maker) != 0;
}

static void describe(const sanitizer *s, const party *p, uint16_t code, uint32_t thread, bool with_block,
                     char out[SAN_WHO]) {
    enum { ROOM = SAN_WHO };
    const char *role = role_of(s, p);
    int32_t maker[3];
    int length;
    find_maker(s, p, maker);
    if (is_copy(s, p) && is_far(s, p)) {
        snprintf(out, ROOM, "the copy from block (%d,%d,%d) to block (%d,%d,%d)", maker[0], maker[1],
                 maker[2], p->index[0], p->index[1], p->index[2]);
        return;
    }
    if (is_context(s, p) && p->local % SAN_ACTORS == SANITIZE_TENSOR)
        length = snprintf(out, ROOM, "the tensor core");
    else if (is_copy(s, p))
        length = snprintf(out, ROOM, "the copy");
    else if (code & SAN_MANY)
        length = snprintf(out, ROOM, "threads of several warps");
    else if (code & SAN_WARP)
        length = snprintf(out, ROOM, "threads of warp %u", (code & SAN_THREAD) / 32U);
    else
        length = snprintf(out, ROOM, "thread %u", (unsigned)thread);
    if (role) length += snprintf(out + length, ROOM - (size_t)length, " of role '%.30s'", role);
    if (with_block)
        snprintf(out + length, ROOM - (size_t)length, ", block (%d,%d,%d)", p->index[0], p->index[1],
                 p->index[2]);
}

/* ---- which threads ---- */

/* Is the thread one of those of the code? */
static bool is_of(const sanitizer *s, const san_event *event, uint16_t code, uint32_t thread) {
    uint32_t offset = thread - (code & SAN_THREAD);
    if (!(code & SAN_HOLDERS)) return offset == 0;
    return offset < TVM_MAX_THREADS && s->layouts[event->layout].holders[offset / 64] >> (offset % 64) & 1;
}

static bool is_in_warp(const sanitizer *s, const san_event *event, uint16_t code) {
    return !(code & SAN_MANY) && (!(code & SAN_HOLDERS) || s->layouts[event->layout].in_warp);
}

static bool one_warp(const sanitizer *s, const san_event *past, uint16_t code, const san_event *now,
                     uint16_t mine) {
    return is_in_warp(s, past, code) && is_in_warp(s, now, mine) &&
           (code & SAN_THREAD) / 32 == (mine & SAN_THREAD) / 32;
}

/* Two threads, one of each side, that nothing orders: those of different warps where there are any, and who
 * comes now not one that did it before, too. */
static void find_pair(const sanitizer *s, const san_event *past, uint16_t code, const san_event *now,
                      uint16_t mine, uint32_t *theirs, uint32_t *own) {
    unsigned best = 0;
    *theirs = code & SAN_THREAD;
    *own = mine & SAN_THREAD;
    if ((code | mine) & (SAN_MANY | SAN_WARP)) return;
    for (uint32_t n = 0; n < TVM_MAX_THREADS && best < 4; n++) {
        if (!is_of(s, now, mine, n)) continue;
        for (uint32_t p = 0; p < TVM_MAX_THREADS && best < 4; p++) {
            unsigned score = 1 + !is_of(s, past, code, n) + 2 * (n / 32 != p / 32);
            if (p == n || score <= best || !is_of(s, past, code, p)) continue;
            best = score;
            *theirs = p;
            *own = n;
        }
    }
}

/* ---- where ---- */

/* The digit of an index with the largest step of those that are left. */
typedef struct index_digit {
    unsigned dim;
    int64_t size, step, below; /* below: what a step of it is in the index */
} index_digit;

static unsigned index_digits(const sanitize_walk *walk, unsigned rank, const int64_t *shape,
                             index_digit out[TVM_MAX_RANK + TVM_MAX_MODES]) {
    const tvm_shared_digits *split = walk->sanitizer->kernel->split[walk->slot];
    int64_t stride[TVM_MAX_RANK];
    unsigned count = 0;
    tvm_interp_strides(walk->context, walk->slot, stride);
    for (unsigned d = 0; d < rank; d++) {
        unsigned parts = split && split[d].count > 1 ? split[d].count : 1;
        int64_t below = shape[d];
        for (unsigned i = 0; i < parts && count < TVM_MAX_RANK + TVM_MAX_MODES; i++) {
            index_digit *digit = &out[count++];
            *digit = (index_digit){d, shape[d], stride[d], 1};
            if (parts == 1) continue;
            below /= split[d].size[i];
            *digit = (index_digit){d, split[d].size[i], split[d].step[i], below};
        }
    }
    return count;
}

/* "%s[3, 4]", the element of the slot that the cell belongs to. */
static void name_element(const sanitize_walk *walk, uint64_t at, char out[96]) {
    const sanitizer *s = walk->sanitizer;
    const tvm_interp_kernel *k = s->kernel;
    int64_t element = (int64_t)((at - walk->first) * 8 * walk->region->granule / walk->bits);
    int64_t shape[TVM_MAX_RANK], index[TVM_MAX_RANK] = {0};
    index_digit digits[TVM_MAX_RANK + TVM_MAX_MODES];
    unsigned rank = tvm_interp_shape(walk->context, walk->slot, shape);
    unsigned count = index_digits(walk, rank, shape, digits);
    for (; count > 0; count--) { /* by their steps, the largest first */
        unsigned next = 0;
        for (unsigned i = 1; i < count; i++)
            if (digits[i].step > digits[next].step) next = i;
        const index_digit of = digits[next];
        memmove(digits + next, digits + next + 1, (count - 1 - next) * sizeof *digits);
        if (of.size <= 1 || of.step <= 0) continue;
        index[of.dim] += element / of.step * of.below;
        element %= of.step;
    }
    int length = snprintf(out, 96, "%s%.40s[", interp_sigil(k, walk->slot), interp_slot_name(k, walk->slot));
    for (unsigned d = 0; d < rank && length < 90; d++)
        length += snprintf(out + length, 96 - (size_t)length, "%s%" PRId64, d ? ", " : "", index[d]);
    if (length < 95) snprintf(out + length, 96 - (size_t)length, "]");
}

/* ---- what ---- */

static bool reads(const san_event *event) {
    return event->mode == SANITIZE_READ;
}

typedef struct verdict {
    san_kind kind;
    const char *hint;
    bool weak; /* the hint does not serve threads of different warps */
} verdict;

/* Of a copy that the access is not ordered after. */
static verdict judge_copy(const sanitize_walk *walk, const party *past, const party *by, bool was_write) {
    const sanitizer *s = walk->sanitizer;
    const san_event *now = by->event;
    uint32_t actor = is_context(s, past) ? past->local % SAN_ACTORS : SANITIZE_BULK;
    verdict v = {.kind = SAN_BUSY};
    if (was_write && reads(now)) v.kind = SAN_UNDELIVERED;
    if (actor == SANITIZE_COPY && past->block) {
        const san_context *own = &past->block->contexts[past->local / SAN_ACTORS];
        const interp_context *context = walk->context;
        const interp_context *maker = &context->block->contexts[past->local / SAN_ACTORS];
        bool committed = past->event->time <= (uint32_t)maker->groups;
        if (!committed)
            v.hint = "a commit-group after the copy, then wait-group and sync";
        else if (past->event->time > own->retired)
            v.hint = "a wait-group that leaves fewer groups pending, then sync";
        else
            v.hint = "a sync after the wait-group: it lets each thread see its own copies alone";
        return v;
    }
    if (actor == SANITIZE_BULK && is_copy(s, by) && is_far(s, by)) {
        v.hint =
            "an arrive-barrier with rank, of the block that waits for the copy's phase, and a wait-barrier "
            "before the next copy";
        return v;
    }
    v.hint = actor == SANITIZE_TENSOR
                 ? "a commit-tensor after it, and a wait-barrier for the phase of its mbarrier"
             : actor == SANITIZE_BULK       ? "a wait-barrier for the phase of the copy's mbarrier"
             : actor == SANITIZE_STORE_READ ? "a wait-bulk with read before the tile is written again"
                                            : "a wait-bulk before others use what it stores";
    return v;
}

static verdict judge(const sanitize_walk *walk, const party *past, const party *now, uint16_t code,
                     uint16_t mine, bool was_write) {
    const sanitizer *s = walk->sanitizer;
    unsigned memory = interp_slot(s->kernel, walk->slot)->kind;
    bool shared = memory != TVM_SLOT_GLOBAL;
    verdict v = {.kind = memory == TVM_SLOT_TENSOR ? SAN_RACE_TENSOR
                         : shared                  ? SAN_RACE_SHARED
                                                   : SAN_RACE_GLOBAL};
    bool same_block = memcmp(past->index, now->index, sizeof past->index) == 0;
    if (is_copy(s, past)) return judge_copy(walk, past, now, was_write);
    if (!same_block && shared) {
        v.hint = "sync-cluster, or an arrive-barrier with rank and a wait-barrier, in between";
    } else if (!same_block) {
        bool atomic = !reads(past->event) && past->event->mode != SANITIZE_WRITE &&
                      now->event->mode != SANITIZE_WRITE && !reads(now->event);
        bool adds = code & mine & SAN_UPDATE;
        if (adds) v.kind = SAN_ORDER;
        v.hint =
            atomic ? "scope gpu: atomics of scope cta are for the threads of one block"
            : adds
                ? "atomic, or lock-semaphore and release-semaphore around the update: blocks run in any order"
            : s->one_sided
                ? "a sync before an atomic release by the one block, and after an atomic acquire by the other: "
                  "each is one thread's"
                : "release-semaphore and lock-semaphore in between, or another launch: blocks run in any order";
    } else if (past->local / SAN_ACTORS != now->local / SAN_ACTORS && is_context(s, now) &&
               now->local >= SAN_ACTORS) {
        v.hint =
            "an arrive-barrier after the one and a wait-barrier before the other; sync is the team's alone";
    } else if (is_copy(s, now) && is_far(s, now)) {
        v.hint = "an arrive-barrier with rank behind it and a wait-barrier before the copy, or sync-cluster";
    } else if (is_copy(s, now) && now->local % SAN_ACTORS == SANITIZE_TENSOR && is_context(s, now)) {
        v.hint =
            "a sync before it: the tensor core may come before other threads than the one that starts it";
    } else if (is_copy(s, now)) {
        v.hint = "a sync before the copy: its threads may be others than those that used the tile";
    } else if (one_warp(s, past->event, code, now->event, mine)) {
        v.hint = "a sync-warp in between, or sync";
        v.weak = true;
    } else {
        v.hint = "a sync in between";
    }
    return v;
}

static const char *verb(const san_event *event, bool past) {
    static const char *const verbs[][2] = {{"reads", "read"}, {"writes", "wrote"}, {"updates", "updated"}};
    return verbs[event->mode == SANITIZE_READ ? 0 : event->mode == SANITIZE_WRITE ? 1 : 2][past];
}

void tvm_san_race(sanitize_walk *walk, uint64_t at, uint32_t event, uint16_t code, uint16_t mine,
                  bool was_write) {
    sanitizer *s = walk->sanitizer;
    const party past = find_party(s, event), now = find_party(s, walk->event);
    const verdict v = judge(walk, &past, &now, code, mine, was_write);
    san_report *report = tvm_san_report(s, v.kind, now.event->insn, past.event->insn);
    if (!report) {
        report = tvm_san_find(s, v.kind, now.event->insn, past.event->insn);
        if (!report || !report->weak || v.weak) return;
    }
    bool other = memcmp(past.index, now.index, sizeof past.index) != 0;
    uint32_t theirs, own;
    find_pair(s, past.event, code, now.event, mine, &theirs, &own);
    report->slot = walk->slot;
    report->hint = v.hint;
    report->weak = v.weak;
    memcpy(report->block, now.index, sizeof report->block);
    name_element(walk, at, report->element);
    describe(s, &now, mine, own, true, report->who);
    describe(s, &past, code, theirs, other, report->whom);
    snprintf(report->what, sizeof report->what, "%s %s %s (%s), which %s, line %u, %s (%s)",
             tvm_san_mnemonic(s, now.event->insn), verb(now.event, false), report->element, report->who,
             tvm_san_mnemonic(s, past.event->insn), (unsigned)tvm_san_place(s, past.event->insn).line,
             verb(past.event, true), report->whom);
}

void tvm_san_early(sanitize_walk *walk, uint64_t at, uint16_t mine, const char *whose) {
    sanitizer *s = walk->sanitizer;
    const party now = find_party(s, walk->event);
    san_report *report = tvm_san_report(s, SAN_DEPENDENCY, now.event->insn, TVM_NONE);
    if (!report) return;
    report->slot = walk->slot;
    report->hint = "a wait-dependency before it; where another team waits, a barrier behind that";
    memcpy(report->block, now.index, sizeof report->block);
    name_element(walk, at, report->element);
    describe(s, &now, mine, mine & SAN_THREAD, true, report->who);
    snprintf(report->what, sizeof report->what, "%s %s %s (%s) before wait-dependency; %s",
             tvm_san_mnemonic(s, now.event->insn), verb(now.event, false), report->element, report->who,
             whose);
}

void tvm_san_undefined(sanitize_walk *walk, uint64_t at, uint16_t mine) {
    sanitizer *s = walk->sanitizer;
    const party now = find_party(s, walk->event);
    san_report *report = tvm_san_report(s, SAN_UNINITIALIZED, now.event->insn, TVM_NONE);
    if (!report) return;
    report->slot = walk->slot;
    report->hint =
        interp_slot(s->kernel, walk->slot)->kind == TVM_SLOT_TENSOR
            ? "a store-tensor, or an mma-tensor with accumulate false, before it is read; alloc-tensor leaves it "
              "undefined"
            : "store to every element before it is read; alloc-shared and alloc-global leave them undefined";
    memcpy(report->block, now.index, sizeof report->block);
    name_element(walk, at, report->element);
    describe(s, &now, mine, mine & SAN_THREAD, true, report->who);
    snprintf(report->what, sizeof report->what, "%s reads %s (%s), which nothing has written",
             tvm_san_mnemonic(s, now.event->insn), report->element, report->who);
}
