// SPDX-License-Identifier: Apache-2.0
/* The one device interface: an opened target, on which ranks have memory and tasks run. The CPU
 * (device/cpu/cpu.h) and CUDA devices (device/cuda/plugin_abi.h) implement it.
 *
 * The host reads and writes a device's memory through host_access.h alone, which copies nothing
 * where that memory is the host's. `why` arguments (TSR_DEVICE_WHY_BYTES) get the reason of a
 * failure, and perhaps a remedy after a newline. */
#ifndef TSR_DEVICE_DEVICE_H
#define TSR_DEVICE_DEVICE_H
#include "kernels/members_sum.h"
#include "device/cpu/thread_pool.h"
#include "graph/padding.h"
#include "schedule/geometry.h"
#include <pthread.h>

enum { TSR_DEVICE_MEMBERS_MAX = 256, TSR_DEVICE_WHY_BYTES = 512, TSR_STAGING_BUFFERS = 2 };

/* Numbers that f16 did not hold as they were: their rounding is not that of the same number times a
 * power of two. */
typedef struct {
  _Atomic int64_t underflows; /* below the least normal number, and rounded there */
  _Atomic int64_t overflows;  /* finite, and infinite there */
} tsr_f16_losses;

/* Where scores from which experts are chosen were NaN: numbers whose order is that of nodes, and of
 * one node that of microbatches and ranks. */
enum { TSR_NAN_BITS = 20 }; /* of a microbatch, and of a rank */
#define TSR_NAN_NOWHERE UINT64_MAX
static inline uint64_t tsr_nan_place(int node, int64_t microbatch, int rank) {
  uint64_t place = (uint64_t)node << TSR_NAN_BITS | (uint64_t)microbatch;
  return place << TSR_NAN_BITS | (uint64_t)rank;
}

/* Measures how long ranks compute, for the profiler. */
typedef struct {
  void *context;
  /* Runs a loop of a pool, whose jobs [i * each, (i + 1) * each) are for ranks[i]. */
  void (*loop)(
      void *context, tsr_pool *pool, tsr_pool_job *job, void *of, int jobs, const int *ranks,
      int each);
  int64_t (*now)(void *context);
  void (*extend)(void *context, int rank, int64_t begin); /* it computed from `begin` until now */
} tsr_task_timer;

/* Hashes of parameters (base/tensor_hash.h), to which a task that updates one adds the hash of what
 * it has written. */
typedef struct {
  uint64_t *sums;      /* per parameter, in the device's memory */
  const bool *counted; /* per rank and parameter, [rank * params + parameter]: it is to be added */
  int params;
} tsr_update_hashes;

/* A task of several ranks of a stage. */
typedef struct {
  tsr_task_call call;            /* `rank` is not set */
  const tsr_rank_memory *memory; /* of all ranks of the mesh */
  const int *ranks;              /* those that run it */
  int ranks_count;
  tsr_f16_losses *losses;       /* of the outputs, counted by devices that can; NULL: not wanted */
  _Atomic uint64_t *nan_scores; /* becomes the least place of a NaN; NULL: not wanted */
  const tsr_update_hashes *hashes; /* of a task that updates parameters; NULL: not wanted */
  const tsr_task_timer *timer;     /* NULL: none */
} tsr_launch;

typedef struct {
  void *to;
  const void *from;
  int64_t bytes;
} tsr_device_copy;

/* Elements [begin, end) of a rank's part of a tensor (base/tensor_hash.h). */
typedef struct {
  const void *data; /* the part */
  tsr_dtype dtype;
  tsr_quantized_layout quantized; /* of that type */
  tsr_tensor_slice part;
  tsr_padding padding;
  int64_t begin, end;
} tsr_hash_part;

/* Bytes to or from the device of another process. */
typedef struct {
  int peer; /* in the communicator */
  bool receives;
  void *address;
  int64_t bytes; /* above 0 */
} tsr_device_message;

/* What of a device's memory is in use outside of what is allocated through the interface. */
typedef struct {
  int64_t bytes;     /* that it has */
  int64_t at_open;   /* in use when it was opened: its context, and what other programs have */
  int64_t libraries; /* since then: workspaces, communicators, kernels that are loaded */
  int64_t reserve;   /* kept free for what has no size yet: kernels that are loaded when they are
                        first begun, captured graphs */
} tsr_device_memory;

typedef struct {
  const char *name;     /* "cpu", "cuda:0" */
  const char *arch;     /* what bits depend on: "x86-64-v3", "cuda sm_90, 132 SMs, cuBLASLt 13.1" */
  const char *location; /* of one of several devices of a host: "0000:1b:00.0"; else NULL */
  const char *text;     /* for logs: "cuda:0, NVIDIA H200, sm_90, 139.8 GiB" */
  int threads;          /* of the host, that share a task; 1: the device computes by itself */
  bool counts_f16_losses;
  void *state;

  /* ---- memory ---- */

  /* All zeros, aligned to 256. */
  bool (*allocate)(void *state, int64_t bytes, void **ret_memory, char *why);
  void (*release)(void *state, void *memory, int64_t bytes);
  int64_t (*available)(
      void *state); /* bytes, without a reserve; 0 of the host's memory: not known */
  /* NULL: the memory is the host's. */
  void (*memory)(void *state, tsr_device_memory *ret);
  /* Memory of the host that `copy` may read while the host does something else. NULL: the device's
   * memory is the host's. */
  bool (*allocate_host)(void *state, int64_t bytes, void **ret_memory, char *why);
  void (*release_host)(void *state, void *memory);

  /* ---- staging, by which the host reaches the device's memory (host_access.h) ----
   *
   * Begin copies between it and TSR_STAGING_BUFFERS buffers of `staging_bytes` in memory of the
   * host, in the order of the tasks' stream. end_copy returns a buffer when its copy is done. */

  int64_t staging_bytes;   /* 0: the device's memory is the host's, and it has none of these */
  pthread_mutex_t *access; /* held by who uses the buffers */
  void (*begin_read)(void *state, int buffer, const void *from, int64_t bytes);
  void (*begin_write)(void *state, int buffer, void *to, int64_t bytes);
  char *(*end_copy)(void *state, int buffer);

  /* ---- work: these begin it, in the order of the calls, and `wait` returns when all is done ----
   * */

  /* What is begun from now on is of that step of the graph. The device is idle. */
  void (*begin_step)(void *state, const tsr_graph *graph, const tsr_step_context *step);
  void (*run)(void *state, const tsr_launch *launch);
  void (*copy)(void *state, const tsr_device_copy *copies, int count);
  /* Adds the hash of a part to a number, both in the device's memory. NF4 is the CPU's alone. */
  void (*hash)(void *state, const tsr_hash_part *part, uint64_t *sum);
  /* Where scores were NaN since the last call (tsr_nan_place), when all work is done; NULL: tasks
   * note it in their launch. */
  uint64_t (*take_nan_scores)(void *state);
  /* A loop of the host over the device's memory, on all its threads. NULL: the device has
   * sum_members and move instead, as kernels/cuda/kernels.h has them under the same names. */
  void (*loop)(void *state, tsr_pool_job *job, void *context, int jobs);
  void (*sum_members)(void *state, const tsr_members_sum *sum);
  void (*move)(
      void *state, void *out, const int64_t *out_step, const void *x, const int64_t *x_step,
      int bytes, int ndim, const int64_t *shape);
  void (*wait)(void *state);
  /* The measured peaks of an idle device: FLOP/s of GEMMs in a type, bytes/s of memory read and
   * written; 0: not known. NULL: runtime/peak_rates.h measures them. */
  void (*limits)(void *state, tsr_dtype dtype, double *ret_flops, double *ret_bytes);

  /* ---- optional: copies between the device's memory and allocate_host's, beside the tasks ----
   *
   * begin_copies: they begin when all work that was begun before is done, one after the other,
   * while work that is begun later goes on. wait_for_copies: what is begun from now on comes after
   * the copies that were last begun under the number, of a few thousand from 0. NULL: `copy`
   * does. */

  void (*begin_copies)(void *state, int number, const tsr_device_copy *copies, int count);
  void (*wait_for_copies)(void *state, int number);

  /* ---- optional: communicators between processes that each have such a device ----
   *
   * Each has a stream. Work is begun on the stream in use (NULL: that of the tasks, in use at
   * first); work of one stream is done in the order in which it is begun. Messages of one exchange
   * go at once; those of a communicator between two processes, in one direction, match in the order
   * in which they are begun. NULL: messages go through the host. */

  /* All processes together, again and again in one order: those of one color become a communicator,
   * in the order of their keys; a process of color -1 gets none, NULL. `all`: how many the process
   * will be in, which may all have work at once: no work of one waits for room on the device that
   * another's has. */
  bool (*form_communicator)(
      void *state, int color, int key, int all, void **ret_communicator, char *why);
  void (*set_stream)(void *state, void *communicator);
  /* What is begun from now on comes after what the communicator's stream has so far. */
  void (*wait_for_stream)(void *state, void *communicator);
  /* mark_stream: a number, of a few thousand from 0, stands for what the communicator's stream has
   * so far. wait_for_mark: what is begun from now on comes after what it last stood for; what the
   * stream has got since may still be under way. */
  void (*mark_stream)(void *state, void *communicator, int number);
  void (*wait_for_mark)(void *state, void *communicator, int number);
  void (*exchange)(void *state, void *communicator, const tsr_device_message *messages, int count);
  /* The library's own sums of f32 or half precision, in whatever order; `in` may be `out`.
   * sum_slices: process i of the communicator gets slice i, of `count` elements, of the sum. */
  void (*sum)(
      void *state, void *communicator, tsr_dtype dtype, const void *in, void *out, int64_t count);
  void (*sum_slices)(
      void *state, void *communicator, tsr_dtype dtype, const void *in, void *out, int64_t count);

  /* ---- optional: capture of work ----
   *
   * From begin_capture to end_capture work is not begun but recorded, with the addresses and
   * numbers that it is given, on the streams of communicators too; `launch` begins all of it, again
   * and again. Where it cannot be recorded these are false and NULL, with the reason in `why` ("":
   * the user's request); nothing was begun then. */

  bool (*begin_capture)(void *state, char *why);
  void *(*end_capture)(void *state, char *why);
  void (*launch)(void *state, void *graph);
  void (*destroy_graph)(void *state, void *graph);
} tsr_device;

#endif
