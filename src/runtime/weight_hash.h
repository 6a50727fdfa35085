// SPDX-License-Identifier: Apache-2.0
/* Hashes of parameters and optimizer state that do not depend on the mesh (base/tensor_hash.h). */
#ifndef TSR_RUNTIME_WEIGHT_HASH_H
#define TSR_RUNTIME_WEIGHT_HASH_H
#include "runtime/process.h"

/* From now on every update of a parameter is followed by its hash, while the caches still hold what
 * the optimizer has written. All parameters are hashed once, here; those that no task updates keep
 * that hash. Error: no memory for 8 bytes a parameter. */
bool tsr_executable_hash_updates(tsr_arena *arena, tsr_executable *executable, tsr_diags *diags);

/* Of an executable that hashes updates; all processes together. All parameters, as they were at the
 * call above or as the last step has left them. */
uint64_t tsr_executable_weight_hash(tsr_executable *executable);
/* Hashes all parameters again: something other than a step has written them. */
void tsr_executable_rehash(tsr_executable *executable);
/* A parameter or state, as it is. */
uint64_t tsr_executable_hash_value(tsr_executable *executable, int value);

#endif
