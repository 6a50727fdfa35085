// SPDX-License-Identifier: Apache-2.0
/* One source, several instruction-set levels: every kernel is named LEVEL(name) and compiled once
 * per level with TSR_LEVEL (the suffix) and TSR_LEVEL_NAME (the table's name) defined by the build.
 * The list below declares each with the type of its slot in tsr_kernels and fills the table in
 * table.c. */
#ifndef TSR_KERNELS_CPU_LEVEL_H
#define TSR_KERNELS_CPU_LEVEL_H
#include "kernels/kernels.h"

#define LEVEL_PASTE2(name, level) tsr_##name##_##level
#define LEVEL_PASTE(name, level) LEVEL_PASTE2(name, level)
#define LEVEL(name) LEVEL_PASTE(name, TSR_LEVEL)
/* A level that has few kernels of its own shares the others of the level below it. */
#if defined(TSR_LEVEL_BELOW)
#define BELOW(name) LEVEL_PASTE(name, TSR_LEVEL_BELOW)
#endif

/* clang-format off */
#define TSR_SHARED_KERNEL_LIST(X)                                                                  \
  X(fill) X(copy) X(add) X(sub) X(mul) X(scale) X(unary) X(unary_backward) X(gated)                \
  X(gated_backward) X(clamped_swiglu) X(clamped_swiglu_backward)                                   \
  X(add_row) X(mul_row) X(layernorm) X(layernorm_backward) X(rmsnorm)            \
  X(rmsnorm_backward) X(softmax) X(softmax_backward) X(adapted_squares) X(divide_root)             \
  X(sum_rows) X(norm_dw) X(embedding)                                                              \
  X(embedding_scratch) X(embedding_sort) X(embedding_backward) X(rope_table) X(rope)               \
  X(softmax_stats) X(softmax_loss)                                                                 \
  X(gemm_bytes) X(choose_experts) X(expert_weights)                                                \
  X(expert_weights_backward) X(expert_counts) X(balance_backward) X(router_z_backward)             \
  X(expert_plan) X(expert_plan_scratch) X(expert_row_of) X(permute_rows) X(combine_rows)           \
  X(combine_rows_backward)                                                                         \
  X(softmax_loss_backward) X(squared_error) X(squared_error_backward) X(sum) X(sum_squares)        \
  X(random_normal) X(random_uniform) X(dropout) X(adamw) X(sgd) X(adamw_bf16) X(sgd_bf16)          \
  X(bf16_to_f32) X(f32_to_bf16) X(f32_to_bf16_stochastic) X(fp16_to_f32) X(f32_to_fp16)            \
  X(quantized_to_f32) X(e4m3_to_f32) X(f32_to_e4m3) X(e5m2_to_f32) X(fp8_quantize) X(hash)         \
  X(limit_fused) X(limit_read)

/* What a level with an instruction for pairs of bf16 has of its own. */
#define TSR_DOT_KERNEL_LIST(X)                                                                     \
  X(gemm_pack) X(gemm) X(gemm_traits) X(skinny_gemm) X(limit_dot)                                  \
  X(attention_bf16) X(attention_scratch) X(attention) X(attention_backward)                        \
  X(attention_sinks_backward) X(attention_ring_rows)                                               \
  X(attention_ring_acc) X(attention_ring_scratch) X(attention_ring) X(attention_ring_finish)       \
  X(attention_ring_dq) X(attention_ring_dq_finish) X(attention_ring_dkv)                           \
  X(attention_ring_dkv_finish) X(attention_cached_scratch) X(attention_cached)
#define TSR_KERNEL_LIST(X) TSR_SHARED_KERNEL_LIST(X) TSR_DOT_KERNEL_LIST(X)
/* clang-format on */

#define LEVEL_DECLARE(name) __typeof__(*((tsr_kernels *)0)->name) LEVEL(name);
TSR_KERNEL_LIST(LEVEL_DECLARE)
#undef LEVEL_DECLARE
#if defined(TSR_LEVEL_BELOW)
#define LEVEL_DECLARE(name) __typeof__(*((tsr_kernels *)0)->name) BELOW(name);
TSR_KERNEL_LIST(LEVEL_DECLARE)
#undef LEVEL_DECLARE
#endif

extern const tsr_kernels LEVEL(table);

#endif
