// SPDX-License-Identifier: Apache-2.0
/* GEMMs in rounds. Each round packs a piece of one operand for all threads, and then every range
 * multiplies its strips of the other one by it. A sum that the recipe splits is made of units, and
 * each of those of one GEMM or several. */
#ifndef TSR_DEVICE_CPU_GEMM_ROUNDS_H
#define TSR_DEVICE_CPU_GEMM_ROUNDS_H
#include "device/cpu/ops.h"

/* What a task's GEMMs have in common: for each of `leaves` (tsr_reduction, all blocks'), c (M, N)
 * of `each` GEMMs over up to K. */
typedef struct {
  int64_t M, N, K, each, leaves;
  bool by_rows, scaled; /* scaled: of codes in FP8, which a first round makes */
  int64_t depth;        /* of a round: so much of K that what is packed stays in the last cache */
  int64_t first; /* of a sum over rows: of the whole tensors, the row that is the operands' first */
} cpu_gemm_plan;

/* Chooses by_rows and the depth, and says what the task quantises. */
cpu_gemm_plan cpu_gemm_plan_made(const tsr_task *t, cpu_gemm_plan plan);
int cpu_gemm_plan_rounds(const cpu_gemm_plan *plan);
int64_t cpu_gemm_plan_strips(const cpu_gemm_plan *plan); /* that are dealt out in a round */
int64_t cpu_gemm_packed_bytes(const tsr_kernels *k, const cpu_gemm_plan *plan);
/* The task's stack of partial sums, behind it what it quantises to FP8, and what is packed. */
int64_t cpu_gemm_plan_scratch(const tsr_kernels *k, const tsr_task *t, const cpu_gemm_plan *plan);
int64_t cpu_gemm_stack_bytes(const tsr_task *t);
char *cpu_gemm_fp8_at(const cpu_call *c);
void *cpu_gemm_packed_at(const cpu_call *c);

/* Where a round stands. */
typedef struct {
  int64_t block, leaf;
  int64_t gemm, piece; /* the GEMM's number in its leaf, the piece's in the GEMM */
} cpu_gemm_place;

/* The GEMM of a place, whole in K; false when there is none (runs of a leaf, pairs). */
typedef bool
cpu_make_gemm(const cpu_call *c, const cpu_gemm_plan *plan, cpu_gemm_place at, tsr_gemm *ret_gemm);

/* Whether each GEMM of the task can store the task's output in bf16: a sum that the recipe does not
 * split. */
bool cpu_gemms_store_bf16(const cpu_call *c, cpu_make_gemm *make, const cpu_gemm_plan *plan);
/* c->round is the round of the plan. */
void cpu_pack_gemm_round(
    const cpu_call *c, cpu_make_gemm *make, const cpu_gemm_plan *plan, int part, int parts);
void cpu_run_gemm_round(
    const cpu_call *c, cpu_make_gemm *make, const cpu_gemm_plan *plan, int64_t begin, int64_t end);

/* Entry i of the stack of a block's sums; entry 0 is the result. */
float *cpu_stack_entry(const cpu_call *c, int64_t block, int i);
/* After the last round of a leaf: rounds it where the sum rounds, and adds what the tree has
 * complete, of rows or columns [begin, end) of c. */
void cpu_add_complete(
    const cpu_call *c, const cpu_gemm_plan *plan, cpu_gemm_place at, int64_t begin, int64_t end);

/* ---- matmul.c ---- */

/* Of a linear_dw. Its GEMMs read rows from plan->first on. */
cpu_gemm_plan cpu_linear_dw_plan(const tsr_task *t);
bool cpu_linear_dw_gemm(
    const cpu_call *c, const cpu_gemm_plan *plan, cpu_gemm_place at, tsr_gemm *ret_gemm);

#endif
