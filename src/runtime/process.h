// SPDX-License-Identifier: Apache-2.0
/* A process: one process that hosts ranks on one device, their memory, and the executor that steps
 * them in lockstep through a program. It hosts all ranks of the mesh, or those that `rank_map`
 * gives it; then what is said of all ranks below is done by all processes together: each calls, in
 * the same order. */
#ifndef TSR_RUNTIME_PROCESS_H
#define TSR_RUNTIME_PROCESS_H
#include "device/cpu/cpu.h"
#include "device/host_access.h"
#include "graph/routing.h"
#include "parallel/parallel.h"
#include "runtime/rank_map.h"

typedef struct {
  const tsr_parallel *parallel;
  const tsr_kernels *kernels;
  int threads;
  uint64_t seed;
  int64_t memory_limit; /* bytes that may be allocated in all; 0: what the machine has available */
  const char
      *state_folder; /* where optimizer state is a memory-mapped file; NULL: it is in memory */
  const tsr_device *device; /* where ranks compute; NULL: the CPU, with these kernels and threads */
  bool fast;                /* policy fast, for sums between devices */
  tsr_all_reduce_algorithm all_reduce;
  tsr_rank_map rank_map; /* all zero: this process is alone */
  double timeout_s;      /* the longest that a process waits for others; 0: for ever */
  /* Called when a message has failed or the timeout is over, with the report; does not return. */
  void (*lost)(void *context, const char *report);
  void *lost_context;
} tsr_process_options;

typedef struct tsr_process tsr_process;
typedef struct tsr_executable tsr_executable; /* a program with memory */

/* Allocates every segment of every rank for its stage's program of `programs[0]`, with a work
 * segment that is large enough for all of `programs` and constants and inputs for each. Refused
 * with the sizes before anything is allocated when it does not fit. Parameters are then
 * initialised, state and cache are zero. The programs share parameters, so their graphs must have
 * the same on the same stages; those that keep values share them, so they must keep the same. */
bool tsr_process_open(
    tsr_arena *arena, const tsr_process_options *options, const tsr_programs *programs,
    int programs_count, tsr_process **ret_process, tsr_executable **ret_bound, tsr_diags *diags);
void tsr_process_close(tsr_process *process);
int64_t
tsr_process_resident_bytes(void); /* of the operating-system process, in memory; 0: unknown */
int64_t tsr_process_bytes(const tsr_process *process); /* allocated for tensors and messages here */

/* Bytes of the host's memory that may still be allocated beside the process's: under its limit, or
 * of what the machine has when all of the process's are in use; at least 0. */
int64_t tsr_executable_memory_left(const tsr_executable *executable);

/* Writes one sample's row of an input (elements of one index of dimension 0). `sample` counts over
 * the whole step: 0 .. batch * microbatches - 1. */
typedef void tsr_fill_row(void *context, const char *input, int64_t sample, void *row);

/* One step: all stages run through their programs, each until it waits for another one. A
 * microbatch's inputs are filled when its forward pass begins; graphs whose inputs no `fill` is
 * given for get random numbers by name. */
void tsr_executable_run(
    tsr_executable *executable, int64_t step, tsr_fill_row *fill, void *context);
/* The next run will be of `step`, with these inputs: a device's may be filled while this one
 * computes. `context` stays until this one is done. */
void tsr_executable_announce(
    tsr_executable *executable, int64_t step, tsr_fill_row *fill, void *context);
/* Once, after a step: why steps are not launched as one captured graph on a device that has them.
 * NULL: they are, or the reason is known already. */
const char *tsr_executable_take_capture_note(tsr_executable *executable);
/* The step's numbers, for all ranks. */
void tsr_executable_set_step_scalars(
    tsr_executable *executable, const float step_scalars[TSR_SCALARS]);

/* Numbers made of the scaled loss that f16 did not hold as they were, on all ranks of all processes
 * since this was asked last: where there are none, a loss scale that is a power of two times this
 * one changes no bit. The CPU counts them; -1 on another device. All processes ask together. */
typedef struct {
  int64_t underflows, overflows;
} tsr_scale_losses;
tsr_scale_losses tsr_executable_take_losses(tsr_executable *executable);

/* Whether scores from which experts are chosen were NaN on any rank of any process since this was
 * asked last: the first node of the placed graph, and of it the first microbatch and its first
 * rank. All processes ask together. */
typedef struct {
  int node, rank;
  int64_t microbatch;
} tsr_nan_scores;
bool tsr_executable_take_nan_scores(tsr_executable *executable, tsr_nan_scores *ret);

int64_t tsr_executable_microbatches(const tsr_executable *executable);

/* From now on the choices of experts of each step are kept: of every layer (graph/routing.h) the
 * choices (tokens, k) of a step's samples in their global order, whatever the mesh is. */
void tsr_executable_record_routing(tsr_arena *arena, tsr_executable *executable);
/* After a step, on all processes together: the layers, and of each the choices, which the first
 * process alone has. */
int tsr_executable_take_routing(
    tsr_executable *executable, const tsr_routing_layer **ret_layers,
    const int32_t *const **ret_choices);

/* The bits that any process has set in `flags`, on all of them. */
uint64_t tsr_executable_agree(tsr_executable *executable, uint64_t flags);

/* Copies a value out whole, on every process, from wherever its parts are; `out` has
 * tsr_value_elements() floats. */
void tsr_executable_read(const tsr_executable *executable, int value, float *out);
/* One row of it (an index over all dimensions but the last). */
void tsr_executable_read_row(const tsr_executable *executable, int value, int64_t row, float *out);
/* Copies a whole value in, to all ranks' parts. */
void tsr_executable_write(tsr_executable *executable, int value, const float *whole);
/* A rank's part of a value in NF4 from its numbers (rows, cols); `replicas`: and the same parts of
 * the ranks here behind it. */
void tsr_executable_quantize(
    tsr_executable *executable, int value, int rank, const float *numbers, bool replicas);
/* A rectangle of real elements that a rank of this process holds of a value (graph/padding.h):
 * slice.shape elements of what is whole without padding, row-major, in runs. */
typedef struct {
  int rank;
  void *address;            /* of NF4 where its bytes begin, in base/quantized_layout.h's order */
  const tsr_device *device; /* whose memory that is (device/host_access.h) */
  tsr_tensor_slice slice;
  int64_t run, stride; /* elements that are neighbours at `address`, and from one such run to the
                          next one's first */
} tsr_part_of_value;
/* The parts of a parameter or of state that are here, in the order of their ranks; `distinct`:
 * without those that another rank before, here or elsewhere, holds too. Room for
 * tsr_executable_parts_most; how many there are. */
int tsr_executable_parts(
    const tsr_executable *executable, int value, bool distinct, tsr_part_of_value *ret_parts);
int tsr_executable_parts_most(const tsr_executable *executable);
/* All of them, at addresses in the host's memory, for TSR_VIEW_READ, _WRITE or both
 * (device/host_access.h; padding is kept), until they are closed: of one value at a time. */
int tsr_executable_open_parts(
    const tsr_executable *executable, int value, int access, tsr_part_of_value *ret_parts);
void tsr_executable_close_parts(const tsr_executable *executable, int value);
const tsr_graph *tsr_executable_graph(const tsr_executable *executable);
int tsr_executable_ranks(const tsr_executable *executable);
tsr_pool *tsr_executable_pool(const tsr_executable *executable);
const tsr_kernels *tsr_executable_kernels(const tsr_executable *executable);
const char *
tsr_executable_arch(const tsr_executable *executable); /* of the device, which bits depend on */

/* Parameters become what they were initialised as, and state zero: of the ranks here. */
void tsr_executable_reset(tsr_executable *executable);
/* The value of a parameter, by its index. */
int tsr_executable_param(const tsr_executable *executable, int param);

#endif
