// SPDX-License-Identifier: Apache-2.0
#ifndef TSR_KERNELS_MEMBERS_SUM_H
#define TSR_KERNELS_MEMBERS_SUM_H
#include <stdbool.h>
#include <stdint.h>

typedef enum { TSR_SUM_F32, TSR_SUM_BF16, TSR_SUM_F16 } tsr_members_sum_type;

/* A sum of tensors in a tree: they are pushed onto a stack, and after tensor m its two topmost
 * entries are added merges[m] times (base/reduction_tree.h). For each k < outs,
 *   out[k][o * part + i] = sum over m of in[m][o * step + start + i],  o < outer, i < part
 * where each sum of two numbers in half precision is made in f32 and rounded to it, and where
 * `onto` puts out[0][o * part + i] before them, as the first entry of the stack. An out may
 * be an in where part == step and start == 0. */
typedef struct {
  tsr_members_sum_type type;
  void *const *out;
  const void *const *in;
  const uint8_t *merges;
  int outs, members;
  bool onto;
  int64_t outer, part, step, start;
} tsr_members_sum;

#endif
