// SPDX-License-Identifier: Apache-2.0
/* The kernels of attention in bf16 compiled with the instructions' emulation
 * (kernels/cpu/dot_emulated.h), upon the level TSR_EMULATED_UPON. */
#ifndef TSR_TESTS_EMULATED_ATTENTION_H
#define TSR_TESTS_EMULATED_ATTENTION_H
#include "kernels/kernels.h"
#include <stddef.h>

/* clang-format off */
#define EMULATED_ATTENTION(X)                                                                      \
  X(attention_bf16) X(attention_scratch) X(attention) X(attention_backward)                        \
  X(attention_sinks_backward) X(attention_ring_acc) X(attention_ring_scratch) X(attention_ring)    \
  X(attention_ring_finish) X(attention_ring_rows) X(attention_ring_dq) X(attention_ring_dq_finish) \
  X(attention_ring_dkv) X(attention_ring_dkv_finish) X(attention_cached_scratch) X(attention_cached)
/* clang-format on */

#define DECLARE(name)                                                                              \
  extern __typeof__(*((tsr_kernels *)0)->name) tsr_##name##_attention_v4,                          \
      tsr_##name##_attention_amx;
EMULATED_ATTENTION(DECLARE)
#undef DECLARE

/* False: this CPU lacks the level, without whose fused additions bits are others. */
static inline bool emulated_attention(tsr_kernels *ret_v4, tsr_kernels *ret_amx) {
  const tsr_kernels *level = tsr_kernels_get(TSR_EMULATED_UPON);
  if (!level) return false;
  *ret_v4 = *ret_amx = *level;
  ret_v4->isa = "vdpbf16ps, emulated", ret_amx->isa = "tdpbf16ps, emulated";
#define SET(name)                                                                                  \
  ret_v4->name = tsr_##name##_attention_v4, ret_amx->name = tsr_##name##_attention_amx;
  EMULATED_ATTENTION(SET)
#undef SET
  return true;
}

#endif
