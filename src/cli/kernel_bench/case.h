// SPDX-License-Identifier: Apache-2.0
/* What is measured of each kernel: a row of a table lists the arrays that a call touches, how much
 * of them it touches and what it computes, and how it is called. A new kernel is a row in its
 * group's file. */
#ifndef TSR_CLI_KERNEL_BENCH_CASE_H
#define TSR_CLI_KERNEL_BENCH_CASE_H
#include "kernels/kernels.h"
#include <stddef.h>

enum { TSR_BENCH_ARRAYS = 12 };

/* Of one call. */
typedef struct {
  int64_t rows, cols;
  int64_t elements;      /* floats of each array */
  int64_t scratch_bytes; /* beside the arrays */
  double floats;         /* that it touches: read, written or both, counted once */
  double flops;          /* 0: none worth counting */
  bool is_dot;           /* of two matrices in bf16, which have a limit of their own */
  int arrays;            /* the first ones, which are filled wholly; */
  int64_t few;           /* and of the others so many floats */
  char shape[32];
} tsr_bench_size;

typedef struct tsr_bench_case tsr_bench_case;

/* A thread's call. Arrays hold numbers from -2 to 2 until `prepare` changes them. */
typedef struct {
  const tsr_kernels *k;
  const tsr_bench_case *what;
  tsr_bench_size size;
  float *x[TSR_BENCH_ARRAYS];
  void *scratch; /* aligned to 64 */
} tsr_bench_call;

/* Either a kernel that streams over arrays (R, cols), which is measured with arrays that no cache
 * holds and with some that the second level does; or, with `fix`, a call of one shape. */
struct tsr_bench_case {
  const char *kernel;  /* of tsr_kernels */
  const char *variant; /* NULL: none */
  void (*run)(const tsr_bench_call *c);
  int64_t cols;
  int arrays;       /* of (R, cols) */
  double touched;   /* floats for each element of one array */
  int kind;         /* of a unary, a rounding, a product */
  bool is_small;    /* only with arrays that the second level holds */
  int64_t shape[4]; /* of a fixed one */
  void (*fix)(const tsr_bench_case *what, const tsr_kernels *k, tsr_bench_size *ret_size);
  void (*prepare)(const tsr_bench_call *c);
  int64_t (*scratch)(const tsr_kernels *k, const tsr_bench_size *s);
};

typedef struct {
  const char *name;
  const tsr_bench_case *cases;
  int count;
} tsr_bench_group;

extern const tsr_bench_group tsr_bench_elementwise, tsr_bench_rows, tsr_bench_tokens,
    tsr_bench_random, tsr_bench_optimizer, tsr_bench_convert, tsr_bench_gemms, tsr_bench_attention,
    tsr_bench_ring, tsr_bench_experts;

#define TSR_BENCH_GROUP(name, cases)                                                               \
  { name, cases, (int)(sizeof cases / sizeof *cases) }

/* All of them; NULL ends the list. */
const tsr_bench_group *const *tsr_bench_groups(void);

/* The size of a call whose arrays together take about so many bytes, or a fixed one's own. */
tsr_bench_size
tsr_bench_size_of(const tsr_bench_case *what, const tsr_kernels *k, int64_t bytes_max);

/* "unary gelu_tanh" */
enum { TSR_BENCH_NAME_MAX = 40 };
void tsr_bench_name(const tsr_bench_case *what, char ret_name[TSR_BENCH_NAME_MAX]);

#endif
