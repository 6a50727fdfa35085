// SPDX-License-Identifier: Apache-2.0
/* How large the key/value cache of generation is. */
#ifndef TSR_TRAIN_CACHE_PLAN_H
#define TSR_TRAIN_CACHE_PLAN_H
#include "train/compile.h"

/* Of a graph that generates `c->batch` texts at once, over `pools` ranks that share them out, with
 * programs that take `chunk` tokens of a text at most. */
tsr_cache_plan tsr_cache_plan_make(
    const tsr_compile_options *o, const tsr_compiled *c, int64_t pools, int64_t chunk);
/* Whether every text can be alone in the cache. Error: options' pages are too few. */
bool tsr_cache_plan_check(const tsr_compile_options *o, const tsr_compiled *c, tsr_diags *diags);

#endif
