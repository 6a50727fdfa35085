// SPDX-License-Identifier: Apache-2.0
/* Where ranks compute, when that is not the CPU: a device that a plugin runs. Its memory is one
 * that the host reaches too, once the device is done with it; so what is read and written between
 * steps knows nothing of devices. */
#ifndef TSR_DEVICE_DEVICE_H
#define TSR_DEVICE_DEVICE_H
#include "device/cpu.h"

enum { TSR_DEVICE_MEMBERS_MAX = 256 }; /* of one sum */

/* Bytes to or from another worker's device. */
typedef struct {
  int peer; /* in the group */
  bool receives;
  void *address;
  int64_t bytes; /* above 0 */
} tsr_device_message;

typedef struct {
  const char *name;  /* "cuda:0" */
  const char *arch;  /* what bits depend on: "cuda sm_90" */
  const char *place; /* that no other device of this host has: "0000:1b:00.0" */
  const char *text;  /* for logs: "cuda:0, NVIDIA H200, sm_90, 139.8 GiB" */
  void *state;
  /* All zeros, aligned to 256. `why` (512 bytes) gets the reason of a failure, and perhaps what to
   * do about it after a newline. */
  bool (*allocate)(void *state, int64_t bytes, void **ret_memory, char *why);
  void (*release)(void *state, void *memory);
  int64_t (*available)(void *state); /* bytes */
  /* Memory of the host that `copy` may read, as above. */
  bool (*allocate_host)(void *state, int64_t bytes, void **ret_memory, char *why);
  void (*release_host)(void *state, void *memory);

  /* Whether it runs a task. Others run on the host, on the same memory. */
  bool (*has)(void *state, const tsr_program *program, const tsr_task *task);
  /* What it can do at most, measured: FLOP/s of products in a type, bytes/s of memory read and
   * written; 0: not known. It is idle. */
  void (*limits)(void *state, tsr_dtype dtype, double *ret_flops, double *ret_bytes);
  /* What is begun from now on is of that step of the graph. The device is idle. */
  void (*begin_step)(void *state, const tsr_graph *graph, const tsr_moment *moment);
  /* These begin work, in the order of the calls; `wait` is over when all of it is done. */
  void (*run)(void *state, const tsr_cpu_call *call);
  void (*copy)(void *state, void *to, const void *from, int64_t bytes);
  /* As kernels/cuda/kernels.h has them under the same names. */
  void (*sum_members)(
      void *state, float *const *out, int outs, float *const *in, int members,
      const uint8_t *merges, int64_t outer, int64_t part, int64_t step, int64_t start);
  void (*move)(
      void *state, void *out, const int64_t *out_step, const void *x, const int64_t *x_step,
      int bytes, int ndim, const int64_t *shape);
  void (*wait)(void *state);

  /* ---- between workers that each have such a device ----
   *
   * All workers form all groups, in one order, whether they are in them or not; a group is
   * `workers`, in that order, and NULL for who is not in it. Each has a lane: what is begun is of
   * the lane in use (NULL: the tasks' own, which is in use at first), work of one lane is done in
   * the order in which it is begun, and lanes know of each other by `follow` alone: what is begun
   * from now on comes after what the lane of `group` has so far. Messages of one exchange go at
   * once; those of a group between two workers, in one direction, meet in the order in which they
   * are begun. All NULL: messages go through the host. */
  bool (*form)(void *state, const int *workers, int count, void **ret_group, char *why);
  void (*use)(void *state, void *group);
  void (*follow)(void *state, void *group);
  void (*exchange)(void *state, void *group, const tsr_device_message *messages, int count);
  /* The library's own sums, in whatever order; `in` may be `out`. sum_slices: worker i of the group
   * gets slice i, of `count` elements, of the sum. */
  void (*sum)(void *state, void *group, const float *in, float *out, int64_t count);
  void (*sum_slices)(void *state, void *group, const float *in, float *out, int64_t count);

  /* From `record` to `recorded` work is not begun but noted, with the addresses and numbers that it
   * is given; `replay` begins all of it, again and again. NULL: it could not be noted, and nothing
   * was begun. */
  bool (*record)(void *state);
  void *(*recorded)(void *state);
  void (*replay)(void *state, void *recording);
  void (*forget)(void *state, void *recording);
} tsr_device;

#endif
