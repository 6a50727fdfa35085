// SPDX-License-Identifier: Apache-2.0
/* The CPU as a device: how each op's task runs on kernels/. Execution over threads and ranks is
 * run/'s. */
#ifndef TSR_DEVICE_CPU_H
#define TSR_DEVICE_CPU_H
#include "kernels/kernels.h"
#include "schedule/program.h"

/* What a task sees of the rank that it runs for. */
typedef struct {
  char *base[TSR_SEGMENTS];
  int coord[TSR_AXES];
  int rank;
} tsr_rank_memory;

typedef struct {
  uint64_t seed;
  int64_t step, microbatch;
} tsr_moment;

/* Numbers that f16 did not hold as they were: their rounding is not that of the same number times a
 * power of two. */
typedef struct {
  _Atomic int64_t underflows; /* below the least normal number, and rounded there */
  _Atomic int64_t overflows;  /* finite, and infinite there */
} tsr_f16_losses;

typedef struct {
  const tsr_kernels *k;
  const tsr_program *program;
  const tsr_task *task;
  const tsr_rank_memory *rank;
  tsr_moment moment;
  int threads, round;
  tsr_f16_losses *losses; /* of the outputs, counted; NULL: they are not */
} tsr_cpu_call;

enum { TSR_CPU_RANGES_MAX = 4 };

/* One op on the CPU: for each round, all parts of `before`, in any order, then all ranges of `run`;
 * in the end `after`, once. */
typedef struct {
  int64_t (*items)(const tsr_task *task);
  int64_t (*scratch)(
      const tsr_kernels *k, const tsr_program *program, const tsr_task *task,
      int threads); /* bytes, or NULL */
  /* bytes of the first output, of an op with TSR_FACT_SIZED */
  int64_t (*output)(const tsr_kernels *k, const tsr_program *program, const tsr_task *task);
  int (*rounds)(const tsr_task *task); /* NULL: 1 */
  void (*before)(const tsr_cpu_call *call, int part, int parts);
  void (*run)(const tsr_cpu_call *call, int64_t begin, int64_t end, int thread);
  void (*after)(const tsr_cpu_call *call);
  /* ranges that each thread is given, TSR_CPU_RANGES_MAX or less; 0: one, and `thread` is whose */
  int ranges;
  bool takes_half; /* knows tensors in half precision; other ops are given f32 copies of them */
} tsr_cpu_op;

/* NULL for collectives, which comm/ runs. */
const tsr_cpu_op *tsr_cpu_find(tsr_op op);

/* Whether a task works on f32 copies of tensors in half precision. Then, around before, run and
 * after, all parts of widen and of narrow run for each rank, in any order. */
bool tsr_cpu_has_copies(const tsr_task *task);
void tsr_cpu_widen(const tsr_cpu_call *call, int part, int parts);
void tsr_cpu_narrow(const tsr_cpu_call *call, int part, int parts);

typedef struct {
  const tsr_kernels *k;
  int threads;
} tsr_cpu_context;
/* A tsr_scratch_rule; the context is a tsr_cpu_context. */
int64_t
tsr_cpu_scratch(const tsr_task *task, const tsr_program *program, bool output, const void *context);

#endif
