// SPDX-License-Identifier: Apache-2.0
/* The tensors that the tasks of a step compute, of the programs that run: hashes that depend on
 * neither mesh nor microbatches (base/tensor_hash.h), and on request their numbers. One process
 * alone can be traced; its device is waited for after each task, and steps are not captured.
 *
 * A tensor is traced once it is complete: it is no pending sum over ranks or reduction units. The
 * forms that collectives give it (reduced, gathered, received by a stage) count as the tensor that
 * the graph has. Rows of experts, whose places depend on the mesh, are not traced. What a
 * microbatch makes is traced as a part of the whole step's samples; of a sum over microbatches the
 * last one counts. What is gathered or cast of a parameter is "copy.NAME". */
#ifndef TSR_RUNTIME_VALUE_TRACE_H
#define TSR_RUNTIME_VALUE_TRACE_H
#include "runtime/process.h"

typedef struct {
  const char *name; /* as before placement; of a parameter's gradient "grad.NAME" */
  int value;        /* of the placed graph: the first of its complete forms */
  int stage, task;  /* that has written it; of that stage's program; -1: it is an input */
  tsr_dtype dtype;
  int ndim;
  int64_t shape[TSR_DIMS_MAX]; /* whole, without padding, with all samples of the step */
  uint64_t hash;
  bool is_copy;  /* of a parameter or a constant, gathered or cast: "copy.NAME" */
  bool is_again; /* it is computed again in the backward pass */
  int differing; /* another form of it whose hash differs: a collective is wrong; -1: none */
} tsr_traced_value;

/* How large the finite elements of a tensor are. */
typedef struct {
  double square, mean; /* the means of their squares and of themselves; square below 0: not known */
} tsr_value_size;

typedef struct tsr_value_trace tsr_value_trace;

/* From now on each step is traced. */
tsr_value_trace *tsr_executable_trace(tsr_arena *arena, tsr_executable *executable);

/* What the last step has computed, in the order of the graph; how many. */
int tsr_value_trace_read(const tsr_value_trace *trace, const tsr_traced_value **ret_values);

/* The same before the first step: what may be traced, without hashes. */
int tsr_value_trace_candidates(const tsr_value_trace *trace, const tsr_traced_value **ret_values);

/* From the next step on the sizes of all traced tensors are found, too. */
void tsr_value_trace_measure(tsr_value_trace *trace);
/* Those of the last step: of each placed value that of its tensor. */
void tsr_value_trace_sizes(const tsr_value_trace *trace, tsr_value_size *ret_sizes);

/* From the next step on the numbers of a placed value go to `out` (whole, as f32), which has as
 * many elements as tsr_traced_value.shape. NULL: no more. */
void tsr_value_trace_capture(tsr_value_trace *trace, int value, float *out);

#endif
