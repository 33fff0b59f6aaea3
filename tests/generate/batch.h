/* Many generated programs as one: what is compiled is a module, whose kernels share its cost. */
#ifndef TVM_TESTS_GENERATE_BATCH_H
#define TVM_TESTS_GENERATE_BATCH_H

/* malloc'ed text of the texts' kernels `k`, which are called k0, k1, ...; NULL texts are left out. */
char *generate_batch(char *const *texts, unsigned count);

#endif
