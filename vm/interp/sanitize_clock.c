/* Clocks, and the events that they are compared with. */
#include "sanitize_impl.h"

#include <stdlib.h>
#include <string.h>

/* The first tick of that one or a higher one. */
static uint32_t find(const san_clock *clock, uint64_t who) {
    uint32_t low = 0, high = clock->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (clock->ticks[middle].who < who)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint32_t tvm_san_seen(const san_clock *clock, uint64_t who) {
    uint32_t at = find(clock, who);
    return at < clock->count && clock->ticks[at].who == who ? clock->ticks[at].time : 0;
}

static bool reserve(san_clock *clock, uint32_t count) {
    if (count <= clock->capacity) return true;
    uint32_t capacity = clock->capacity ? clock->capacity : 8;
    while (capacity < count) capacity *= 2;
    san_tick *ticks = realloc(clock->ticks, capacity * sizeof *ticks);
    if (!ticks) return false;
    clock->ticks = ticks;
    clock->capacity = capacity;
    return true;
}

bool tvm_san_see(san_clock *clock, uint64_t who, uint32_t time) {
    uint32_t at = find(clock, who);
    if (time == 0) return true;
    if (at < clock->count && clock->ticks[at].who == who) {
        if (clock->ticks[at].time < time) clock->ticks[at].time = time;
        return true;
    }
    if (!reserve(clock, clock->count + 1)) return false;
    memmove(clock->ticks + at + 1, clock->ticks + at, (clock->count - at) * sizeof *clock->ticks);
    clock->ticks[at] = (san_tick){who, time};
    clock->count++;
    return true;
}

bool tvm_san_join(san_clock *clock, const san_clock *other) {
    uint32_t added = 0;
    for (uint32_t i = 0, j = 0; j < other->count; j++) {
        while (i < clock->count && clock->ticks[i].who < other->ticks[j].who) i++;
        added += i == clock->count || clock->ticks[i].who != other->ticks[j].who;
    }
    if (!reserve(clock, clock->count + added)) return false;
    uint32_t from = clock->count, to = clock->count + added, next = other->count;
    clock->count = to;
    while (next > 0) {
        const san_tick tick = other->ticks[next - 1];
        if (from > 0 && clock->ticks[from - 1].who > tick.who) {
            clock->ticks[--to] = clock->ticks[--from];
            continue;
        }
        next--;
        if (from > 0 && clock->ticks[from - 1].who == tick.who) {
            uint32_t time = clock->ticks[--from].time;
            clock->ticks[--to] = (san_tick){tick.who, time > tick.time ? time : tick.time};
        } else {
            clock->ticks[--to] = tick;
        }
    }
    return true;
}

void tvm_san_clock_free(san_clock *clock) {
    free(clock->ticks);
    *clock = (san_clock){0};
}

uint32_t tvm_san_event(sanitizer *s, san_context *context, const san_event *event) {
    uint32_t latest = context->latest[event->insn];
    if (latest) {
        const san_event *last = &s->events[latest];
        if (last->actor == event->actor && last->time == event->time && last->layout == event->layout &&
            last->mode == event->mode && last->rank == event->rank && last->sums == event->sums)
            return latest;
    }
    if (s->event_count == s->event_capacity) {
        uint32_t capacity = s->event_capacity ? 2 * s->event_capacity : 1024;
        san_event *events =
            capacity > s->event_capacity ? realloc(s->events, capacity * sizeof *events) : NULL;
        if (!events) return 0;
        s->events = events;
        s->event_capacity = capacity;
        if (!s->event_count) s->events[s->event_count++] = (san_event){0};
    }
    s->events[s->event_count] = *event;
    context->latest[event->insn] = s->event_count;
    return s->event_count++;
}
