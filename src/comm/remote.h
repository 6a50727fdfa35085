/* Collectives between ranks of which some are other workers': the same results, bit for bit, as
 * tsr_collective_run gives where one worker has them all.
 *
 * Each worker that hosts a member calls begin with the same collective, where `in` and `out` of
 * members that others host are NULL, and then goes on (tsr_remote_go_on) until it is done; between
 * two calls it may do other work. Sums (all_reduce, reduce_scatter): everybody sends slice i of its
 * members' summands to slice i's owner, the owner adds them in the tree of base/tree.h over all
 * members, and with all_reduce sends the sums to everybody. Members of one worker that are a
 * subtree are added before they are sent. Between hosts: what several workers of one host hold that
 * is a subtree is added by one of them, and only that sum crosses; the sums of all_reduce cross
 * once to each host. What is only moved (all_gather, ring_shift, all_to_all) is sent to whom it is
 * for. Large tensors go in chunks, so that one is added while the next is under way.
 *
 * Policy fast: with `group`, sums are the transport's own, of what each worker's members give when
 * they are added in a tree of their own; the bits are then the library's. A reduce_scatter whose
 * slices are several members' each, and sums of more elements than the transport's can have, stay
 * the tree's. */
#ifndef TSR_COMM_REMOTE_H
#define TSR_COMM_REMOTE_H
#include "comm/collective.h"
#include "comm/transport.h"

/* Runs job(context, 0 .. jobs - 1), perhaps on several threads, and returns when all are done. */
typedef void tsr_remote_pool(void *pool, void (*job)(void *context, int job), void *context, int jobs);

typedef struct {
  tsr_transport *transport;
  const tsr_collective *collective; /* copied */
  const int *worker_of;             /* per member; copied as far as needed */
  int tag;                          /* the same on all, of no other collective under way */
  tsr_remote_pool *run;             /* NULL: on the caller's thread */
  void *pool;
  int threads; /* that `run` has */
  const int *hosts; /* per worker of the transport: the same number on one host; NULL: all are on one */
  void *group; /* of the transport's, of just the members' workers, ascending; calls of one group begin in
                  the same order on all of them; NULL: sums are the tree's */
} tsr_remote_call;

typedef struct tsr_remote tsr_remote; /* lives in the memory that is given for it */

/* Whether a sum of so many elements is the transport's own where there is a group. `groups`: as in
 * tsr_collective. */
bool tsr_remote_is_library(tsr_op op, int groups, int64_t elements);

/* Bytes that a call needs beside the tensors; a function of the collective's op, shape, element,
 * members, worker_of and hosts, and whether there is a group; not of its buffers, so that it can be
 * planned. */
int64_t tsr_remote_bytes(const tsr_remote_call *call);

/* `memory` (tsr_remote_bytes, aligned to 64) is the call's until it is done. */
tsr_remote *tsr_remote_begin(const tsr_remote_call *call, void *memory);

typedef enum { TSR_REMOTE_PENDING, TSR_REMOTE_DONE, TSR_REMOTE_FAILED } tsr_remote_state;
/* Never waits. */
tsr_remote_state tsr_remote_go_on(tsr_remote *remote);

/* Of a call that is not done: the workers whose messages have not come, as a bit each (bit 63
 * stands for all above), and why it failed. */
uint64_t tsr_remote_missing(const tsr_remote *remote);
const char *tsr_remote_why(const tsr_remote *remote);

#endif
