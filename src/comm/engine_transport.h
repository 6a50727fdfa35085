// SPDX-License-Identifier: Apache-2.0
/* The engine for lists with messages of a transport: a collective that is in flight. Each process
 * that has a member begins with a list of the same collective, then advances it until it is done;
 * between two calls it may do other work. Nothing here waits, or allocates. */
#ifndef TSR_COMM_ENGINE_TRANSPORT_H
#define TSR_COMM_ENGINE_TRANSPORT_H
#include "comm/group_topology.h"
#include "comm/collective_steps.h"
#include "comm/transport.h"

/* Runs job(context, 0 .. jobs - 1), perhaps on several threads, and returns when all are done. */
typedef void
tsr_pending_pool(void *pool, void (*job)(void *context, int job), void *context, int jobs);

typedef struct {
  tsr_transport *transport;
  const tsr_step_list *list; /* of this and the layout; they stay until it is done */
  const tsr_layout *layout;
  const tsr_collective
      *collective; /* in and out NULL where the member is another process's; copied */
  int tag;         /* the same on all, of no other collective in flight */
  void *group;     /* of the transport's, of just the members' processes, ascending; lists with a
                      library's     sum begin in the same order on all of them; else NULL */
  tsr_pending_pool *run; /* NULL: on the caller's thread */
  void *pool;
  int threads; /* that `run` has */
} tsr_pending_call;

typedef struct tsr_pending tsr_pending; /* lives in the memory that is given for it */

/* Bytes that a call needs beside the tensors: a function of the list and the members' number. */
int64_t tsr_pending_bytes(const tsr_step_list *list, int members);

/* `memory` (tsr_pending_bytes, aligned to 64) is the call's until it is done. */
tsr_pending *tsr_pending_begin(const tsr_pending_call *call, void *memory);

typedef enum { TSR_PENDING, TSR_PENDING_DONE, TSR_PENDING_FAILED } tsr_pending_state;
/* Does what can be done. */
tsr_pending_state tsr_pending_advance(tsr_pending *pending);

/* Of a call that is not done: the processes whose messages have not come, as a bit each (bit 63
 * stands for all above), and why it failed. */
uint64_t tsr_pending_missing(const tsr_pending *pending);
const char *tsr_pending_why(const tsr_pending *pending);

#endif
