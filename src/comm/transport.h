// SPDX-License-Identifier: Apache-2.0
/* Messages between processes. A transport is one table of functions in a plugin, which the program
 * loads when it finds itself started by that launcher (libtessera-openmpi.so, libtessera-mpich.so),
 * or one inside the process for tests (transport_threads.h). It moves bytes and knows neither ranks
 * nor groups: what collectives mean, and the order of every sum, is ours (collective.h).
 *
 * All calls of one transport come from one thread. Messages of one pair of processes with the same
 * tag arrive in the order in which they were sent; others may overtake each other. */
#ifndef TSR_COMM_TRANSPORT_H
#define TSR_COMM_TRANSPORT_H
#include "base/diag.h"
#include <stddef.h>
#include <stdint.h>

enum {
  TSR_TRANSPORT_ABI = 2,
  TSR_TRANSPORT_TAGS = 1 << 20,
  TSR_TRANSPORT_SUM_MAX = 1 << 30, /* elements of one sum of a group */
  TSR_WHY_BYTES = 512
};
#define TSR_TRANSPORT_ENTRY "tsr_transport_entry"

/* Of a message under way; the caller's memory, and only the transport uses it. */
typedef struct {
  void *words[4];
} tsr_message;

typedef enum { TSR_MESSAGE_PENDING, TSR_MESSAGE_DONE, TSR_MESSAGE_FAILED } tsr_message_state;

typedef struct {
  int abi;          /* TSR_TRANSPORT_ABI of the program that it was built with */
  size_t bytes;     /* sizeof(tsr_transport_table) */
  const char *name; /* "openmpi" */

  /* Joins the job; once in a process. `why` (TSR_WHY_BYTES) gets the reason of a failure. */
  bool (*open)(void **ret_state, int *ret_process, int *ret_processes, char *why);
  /* The library's name and version, for logs; the name of the host that a process is on. */
  const char *(*version)(void *state);
  const char *(*host)(void *state, int process);
  /* Begin a message of `bytes` >= 0 bytes, which must stay as they are, and where they are, until
   * it is done. `tag` is in [0, TSR_TRANSPORT_TAGS). A receive gets exactly as many bytes as it
   * asks for; another count is a failure. */
  bool (*send)(
      void *state, int to, int tag, const void *from, int64_t bytes, tsr_message *ret, char *why);
  bool (*receive)(
      void *state, int from, int tag, void *to, int64_t bytes, tsr_message *ret, char *why);
  /* Never waits. A message that is done or failed is not asked for again. */
  tsr_message_state (*test)(void *state, tsr_message *message, char *why);
  /* The library's own sum over all processes, in place, in whatever order, waiting: what
   * ours is compared with. */
  bool (*all_reduce)(void *state, float *numbers, int64_t count, char *why);
  /* The library's own sums of f32 among some processes, in whatever order; all three NULL: it has
   * none. form makes a group: its processes (ascending) all call it, and wait for each other, so
   * who is in several groups forms them in one order that is the same everywhere; groups last
   * until close. The other two begin a sum, which is tested like a message, in the same order on
   * all of the group's processes; all that they are given stays where it is until it is done. sum:
   * `out` of all processes gets the sum of their `in`, which may be the same memory. sum_slices:
   * `in` has a slice for each process, one after the other, of `counts` elements, and `out`, other
   * memory, gets this process's. */
  bool (*form)(void *state, const int *processes, int count, void **ret_group, char *why);
  bool (*sum)(void *group, const float *in, float *out, int64_t count, tsr_message *ret, char *why);
  bool (*sum_slices)(
      void *group, const float *in, float *out, const int *counts, tsr_message *ret, char *why);
  /* Leaves the job when all do. */
  void (*close)(void *state);
  /* Ends the job, also for the others as far as the launcher does that; does not return. */
  void (*abort)(void *state, int code);
} tsr_transport_table;

typedef struct {
  const tsr_transport_table *table; /* NULL: this process is alone */
  void *state;
  int process, processes; /* 0 and 1 for a process that is alone */
  const char *why; /* how it was chosen, for the log: "openmpi 4.1.4, by OMPI_COMM_WORLD_SIZE" */
  const struct tsr_peer *peers; /* per process; NULL: they have not met (peers.h) */
  bool shares_memory; /* processes of one host may map each other's memory (peer_memory.h) */
} tsr_transport;

/* What started this process: TESSERA_TRANSPORT=openmpi|mpich|none, else the launcher's variables
 * (OMPI_COMM_WORLD_SIZE and PMIX_RANK of Open MPI and srun --mpi=pmix; PMI_RANK, PMI_SIZE of MPICH
 * and srun --mpi=pmi2; a count of 1 is a process that is alone). The plugin is looked for in
 * TESSERA_PLUGIN_PATH, beside the program, and in ../lib/tessera-train. Errors: a launcher without
 * its plugin, with every path that was tried and what to install; a plugin of another build. Where
 * the transport that is named is none, the launcher's is joined all the same: others may wait. */
bool tsr_transport_open(tsr_arena *arena, tsr_transport *ret_transport, tsr_diags *diags);
/* How many processes were started together with this one, without opening anything; 1: it is alone,
 * or nothing says. */
int tsr_transport_launched(tsr_arena *arena);
/* The same by the launcher's variables alone, whatever TESSERA_TRANSPORT is. */
int tsr_transport_started(tsr_arena *arena);
/* Whether a launcher of MPI processes has started this one, of whatever count: its variables are
 * there. */
bool tsr_transport_has_launcher(void);
/* Whether TESSERA_TRANSPORT can have this value. */
bool tsr_transport_is_name(const char *text);
void tsr_transport_close(tsr_transport *transport);

#endif
