// SPDX-License-Identifier: Apache-2.0
/* The arguments of kernels that CPU and CUDA share (kernels/kernels.h), from a task's geometry. */
#ifndef TSR_DEVICE_ARGUMENTS_H
#define TSR_DEVICE_ARGUMENTS_H
#include "kernels/kernels.h"
#include "schedule/geometry.h"

/* The function of a unary op, of a gated one or of its gradient. */
tsr_unary tsr_unary_of(tsr_op op);
/* Of a task whose first input is x (B,T,H*D). */
tsr_rope tsr_rope_of(const tsr_task_call *call);
/* Of the task's queries and keys; without a rank, sizes alone. */
tsr_attention tsr_attention_of(const tsr_task_call *call);
/* The same inside documents, of whose positions cp may split the results. */
tsr_attention tsr_document_attention_of(const tsr_task_call *call);
tsr_attention_cached tsr_attention_cached_of(const tsr_task_call *call);
/* The same over units; `step` is that of a ring's op. */
tsr_attention_ring tsr_attention_ring_of(const tsr_task_call *call);
/* The inputs of an attention task that are q and k. */
typedef struct {
  int q, k;
} tsr_attention_inputs;
tsr_attention_inputs tsr_attention_inputs_of(tsr_op op);
/* The inputs and the outputs, a bit of each, that are q, k, v, out or a gradient of these; of other
 * ops none. Whether all of these are in bf16 (tsr_attention.bf16). */
typedef struct {
  unsigned inputs, outputs;
} tsr_attention_operands;
tsr_attention_operands tsr_attention_operands_of(tsr_op op);
bool tsr_attention_is_bf16(const tsr_task *task);

#endif
