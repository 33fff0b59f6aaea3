/* A cache of the choices of an entry, by the arguments that its conditions read. Threads read and write it at
 * the same time, without waiting for each other; new choices replace old ones. */
#ifndef TVM_VM_VARIANTS_MEMORY_H
#define TVM_VM_VARIANTS_MEMORY_H

#include "program.h"

enum { TVM_CHOICE_PARAMS = 12 };

typedef struct tvm_choices tvm_choices;

/* Makes a cache for `count` parameters, at most TVM_CHOICE_PARAMS. Release with free. NULL: out of memory. */
tvm_choices *tvm_choices_make(const uint16_t *params, uint32_t count);

bool tvm_choices_find(const tvm_choices *choices, const tvm_scalar *scalars, uint32_t *index);
/* Nothing is noted while another thread writes at the same place. */
void tvm_choices_note(tvm_choices *choices, const tvm_scalar *scalars, uint32_t index);

#endif
